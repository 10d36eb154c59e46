"""What came of the demo's records, by group, beside what the plan says must come of them.

Whether a record ended where, when and as often as it must is compared here, so that the demo knows
when all has arrived. Whether it arrived unchanged is for the audit to say; only check-backs, which
the audit does not judge, are compared byte for byte.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from proxy.cli.trial.demo.evidence import Arrival, Evidence, Sent
from proxy.cli.trial.demo.plan import Wanted
from proxy.records.headers import CHECK, ERROR, ID, KEY, PREFIX, TRANSACTION
from proxy.records.outcome import REQUEUED

FAULTS = ("missing", "twice", "early", "altered")
UNKNOWN = "unknown"


@dataclass(slots=True)
class GroupResult:
    """What was found of one group of records, or of all.

    to_arrive: how many of those sent must be seen in a target or among the dead letters. ended:
    outcomes found. missing, twice: arrivals, outcomes or check-backs too few and too many.
    """

    sent: int = 0
    to_arrive: int = 0
    arrived: int = 0
    missing: int = 0
    twice: int = 0
    early: int = 0
    altered: int = 0
    checks: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    lateness_ms: list[int] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether each record ended exactly once, as it must and not early."""
        return not any(getattr(self, name) for name in FAULTS)

    def add(self, other: "GroupResult") -> None:
        """Count another group in."""
        for name in ("sent", "to_arrive", "arrived", "checks", *FAULTS):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.ended += other.ended
        self.lateness_ms += other.lateness_ms

    def add_ends(self, wanted: Wanted, ends: Sequence[str]) -> None:
        """The outcomes of a record. Its place in the queue after a pause may pass while the proxy
        stands still: then it gets another one, with one more outcome."""
        self.ended += Counter(ends)
        again = ends.count(REQUEUED) - wanted.ends.count(REQUEUED)
        may_be_again = repeat(REQUEUED, max(0, again) if REQUEUED in wanted.ends else 0)
        self._compare([*wanted.ends, *may_be_again], ends)

    def add_arrivals(
        self, wanted: Wanted, sent: Sent, arrivals: Sequence[Arrival], dead_letters: str
    ) -> None:
        """What arrived of a record, in its target or among the dead letters."""
        self.to_arrive += wanted.arrives
        self.arrived += len(arrivals)
        code = wanted.reason and wanted.reason.encode()
        expected = [(dead_letters if code else wanted.topic, code)] if wanted.arrives else []
        self._compare(expected, [(one.topic, one.header(ERROR)) for one in arrivals])
        due_ms = wanted.due_when_sent(sent.timestamp_ms)
        for arrival in arrivals if code is None else ():
            self.lateness_ms.append(arrival.seen_ms - max(due_ms, sent.timestamp_ms))
            self.early += arrival.appended_ms < due_ms

    def add_checks(self, wanted: Wanted, sent: Sent, checks: Sequence[Arrival]) -> None:
        """The check-backs of a half message."""
        due = {b"%d" % n: sent.timestamp_ms + ms for n, ms in enumerate(wanted.checks_ms, start=1)}
        numbers = [check.header(CHECK) or b"?" for check in checks]
        self.checks += len(checks)
        self._compare(list(due), numbers)
        for number, check in zip(numbers, checks, strict=True):
            self.early += check.appended_ms < due.get(number, 0)
            self.altered += not _is_right_check(wanted, check)

    def _compare(self, wanted: Sequence[object], found: Sequence[object]) -> None:
        """Count what there is too little and too much of."""
        self.missing += (Counter(wanted) - Counter(found)).total()
        self.twice += (Counter(found) - Counter(wanted)).total()


def group_results(
    plan: Sequence[Wanted], sent: Mapping[str, Sent], evidence: Evidence
) -> dict[str, GroupResult]:
    """By group, in the order of the plan. `sent` is keyed by `Wanted.ident`.

    What belongs to no record of the plan counts as altered or too many, in the group `unknown`.
    """
    arrivals, checks = _by_ident(evidence.arrivals), _by_ident(evidence.checks)
    ends = dict(evidence.ends_by_root())
    results: dict[str, GroupResult] = {}
    for wanted in plan:
        receipt = sent[wanted.ident]
        result = results.setdefault(wanted.group, GroupResult())
        result.sent += 1
        found = arrivals.pop(wanted.ident, [])
        result.add_arrivals(wanted, receipt, found, evidence.topics.dead_letters)
        result.add_checks(wanted, receipt, checks.pop(wanted.ident, []))
        result.add_ends(wanted, ends.pop(receipt.origin, []))
    if arrivals or checks or ends:
        strangers = [*arrivals.values(), *checks.values()]
        results[UNKNOWN] = GroupResult(altered=sum(map(len, strangers)))
        results[UNKNOWN].twice = sum(map(len, ends.values()))
    return results


def _by_ident(arrivals: Sequence[Arrival]) -> dict[str, list[Arrival]]:
    found: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        found[arrival.ident].append(arrival)
    return dict(found)


def _is_right_check(wanted: Wanted, check: Arrival) -> bool:
    asked = dict(wanted.headers)
    own = [header for header in check.headers if not header[0].startswith(PREFIX)]
    return (
        (check.key, check.value, own) == (asked[KEY], wanted.value, wanted.own_headers)
        and check.header(TRANSACTION) == b"check"
        and check.header(ID) == asked[ID]
    )
