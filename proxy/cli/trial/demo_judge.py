"""Judges a demo: did each record end exactly once, as it should, unchanged and never early."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxy.cli.trial.demo_evidence import Arrival, Evidence, Sent
from proxy.cli.trial.demo_plan import DEMO_ID, Wanted
from proxy.dispatch.hops import REPLACED
from proxy.records.headers import CHECK, DUE, ERROR, FIRST_ORIGIN, ID, ORIGIN, PREFIX, TRANSACTION

FAULTS = ("missing", "twice", "early", "altered")
UNKNOWN = "unknown"


@dataclass(slots=True)
class Verdict:
    """What was found in one group of records, or in all.

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
        """Whether each record ended exactly once, unchanged, not early."""
        return not any(getattr(self, name) for name in FAULTS)

    def add(self, other: "Verdict") -> None:
        """Count another group in."""
        for name in ("sent", "to_arrive", "arrived", "checks", *FAULTS):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.ended += other.ended
        self.lateness_ms += other.lateness_ms

    def compare(self, wanted: Counter[str], found: Counter[str]) -> None:
        """Count what there is too little and too much of."""
        self.missing += (wanted - found).total()
        self.twice += (found - wanted).total()


def due_ms(wanted: Wanted, sent: Sent) -> int:
    """When the record is due; a time that had passed when it was sent means at once."""
    due = wanted.due_ms if wanted.due_ms is not None else sent.timestamp_ms + wanted.delay_ms
    return max(due, 0)


def judge(
    plan: Sequence[Wanted],
    sent: Mapping[str, Sent],
    evidence: Evidence,
) -> dict[str, Verdict]:
    """One verdict a group, in the order of the plan. `sent` is keyed by `Wanted.ident`.

    What belongs to no record of the plan counts as altered or too many, in the group `unknown`.
    """
    arrivals, checks = _by_ident(evidence.arrivals), _by_ident(evidence.checks)
    ends = dict(evidence.ends_by_root())
    verdicts: dict[str, Verdict] = {}
    for wanted in plan:
        receipt = sent[wanted.ident]
        verdict = verdicts.setdefault(wanted.group, Verdict())
        verdict.sent += 1
        _judge_arrivals(verdict, wanted, receipt, arrivals.pop(wanted.ident, []), evidence)
        _judge_checks(verdict, wanted, receipt, checks.pop(wanted.ident, []))
        found = Counter(ends.pop(receipt.origin, []))
        verdict.ended += found
        verdict.compare(Counter(wanted.ends), found)
    if arrivals or checks or ends:
        strangers = [*arrivals.values(), *checks.values()]
        verdicts[UNKNOWN] = Verdict(altered=sum(map(len, strangers)))
        verdicts[UNKNOWN].twice = sum(map(len, ends.values()))
    return verdicts


def _by_ident(arrivals: Sequence[Arrival]) -> dict[str, list[Arrival]]:
    found: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        found[(arrival.header(DEMO_ID) or b"?").decode()].append(arrival)
    return dict(found)


def _judge_arrivals(
    verdict: Verdict, wanted: Wanted, sent: Sent, arrivals: Sequence[Arrival], evidence: Evidence
) -> None:
    verdict.to_arrive += wanted.arrives
    verdict.arrived += len(arrivals)
    verdict.compare(Counter(it=int(wanted.arrives)), Counter(it=len(arrivals)))
    successors = evidence.successors.get(sent.origin, [])
    origin = successors[-1] if wanted.moves and successors else sent.origin
    for arrival in arrivals:
        if wanted.reason is not None:
            letters = evidence.topics.dead_letters
            is_right = _is_right_dead_letter(wanted, arrival, letters)
        else:
            lateness_ms = arrival.seen_ms - max(due_ms(wanted, sent), sent.timestamp_ms)
            verdict.lateness_ms.append(lateness_ms)
            verdict.early += arrival.appended_ms < due_ms(wanted, sent)
            is_right = _is_faithful(wanted, sent, arrival)
        verdict.altered += not (is_right and _is_of(wanted, sent, arrival, origin))


def _judge_checks(verdict: Verdict, wanted: Wanted, sent: Sent, checks: Sequence[Arrival]) -> None:
    numbers = Counter((check.header(CHECK) or b"?").decode() for check in checks)
    due = {str(n): sent.timestamp_ms + ms for n, ms in enumerate(wanted.checks_ms, start=1)}
    verdict.checks += len(checks)
    verdict.compare(Counter(due.keys()), numbers)
    for check in checks:
        number = (check.header(CHECK) or b"?").decode()
        verdict.early += check.appended_ms < due.get(number, 0)
        verdict.altered += not _is_right_check(wanted, check)


def _is_of(wanted: Wanted, sent: Sent, arrival: Arrival, origin: str) -> bool:
    """Whether the stamps name the record that was sent, or the one it became."""
    first = sent.origin.encode() if wanted.moves else None
    return arrival.header(ORIGIN) == origin.encode() and arrival.header(FIRST_ORIGIN) == first


def _own_headers(arrival: Arrival) -> list[tuple[str, bytes | None]]:
    return [header for header in arrival.headers if not header[0].startswith(PREFIX)]


def _is_faithful(wanted: Wanted, sent: Sent, arrival: Arrival) -> bool:
    """Right topic and partition, key, value and own headers byte for byte, true due."""
    return (
        arrival.topic == wanted.topic
        and (arrival.key, arrival.value) == (wanted.target_key, wanted.value)
        and _own_headers(arrival) == wanted.own_headers
        and wanted.partition in {None, arrival.partition}
        and arrival.header(DUE) == str(due_ms(wanted, sent)).encode()
    )


def _is_right_dead_letter(wanted: Wanted, arrival: Arrival, topic: str) -> bool:
    """The record as it was in the ingress; one that moved asks for its time in other words."""
    kept = {one for one in wanted.all_headers if not (wanted.moves and one[0] in REPLACED)}
    return (
        arrival.topic == topic
        and (arrival.key, arrival.value) == (wanted.key, wanted.value)
        and kept <= set(arrival.headers)
        and arrival.header(ERROR) == (wanted.reason or "").encode()
    )


def _is_right_check(wanted: Wanted, check: Arrival) -> bool:
    return (
        (check.key, check.value) == (wanted.target_key, wanted.value)
        and _own_headers(check) == wanted.own_headers
        and check.header(TRANSACTION) == b"check"
        and check.header(ID) == dict(wanted.headers).get(ID)
    )
