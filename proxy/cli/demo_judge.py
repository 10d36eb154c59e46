"""Judges a demo: did each record end exactly once, where it should, unchanged and never early."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.cli.demo_plan import DEMO_ID, Wanted
from proxy.headers import DUE, ERROR, ORIGIN, PREFIX


@dataclass(frozen=True, slots=True)
class Sent:
    """The broker's receipt of an ingress record."""

    origin: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record read (read_committed) from a target or from the dead letters.

    `appended_ms` is the broker's own timestamp, `seen_ms` the reader's clock.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    appended_ms: int
    seen_ms: int

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return dict(self.headers).get(name)


@dataclass(slots=True)
class Verdict:
    """What was found in one group of records, or in all."""

    sent: int = 0
    arrived: int = 0
    missing: int = 0
    twice: int = 0
    early: int = 0
    altered: int = 0
    lateness_ms: list[int] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether each record ended exactly once, unchanged, not early."""
        return not (self.missing or self.twice or self.early or self.altered)

    def add(self, other: "Verdict") -> None:
        """Count another group in."""
        for name in ("sent", "arrived", "missing", "twice", "early", "altered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lateness_ms += other.lateness_ms


def due_ms(wanted: Wanted, sent: Sent) -> int:
    """When the record is due; a time that had passed when it was sent means at once."""
    due = wanted.due_ms if wanted.due_ms is not None else sent.timestamp_ms + wanted.delay_ms
    return max(due, 0)


def judge(
    plan: Sequence[Wanted],
    sent: Mapping[str, Sent],
    arrivals: Iterable[Arrival],
    dead_letter_topic: str,
) -> dict[str, Verdict]:
    """One verdict a group, in the order of the plan. `sent` is keyed by `Wanted.ident`.

    An arrival nobody wanted counts as altered, in the group `unknown`.
    """
    found: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        found[(arrival.header(DEMO_ID) or b"?").decode()].append(arrival)
    verdicts: dict[str, Verdict] = {}
    for wanted in plan:
        verdict = _judge_one(
            wanted, sent[wanted.ident], found.pop(wanted.ident, []), dead_letter_topic
        )
        verdicts.setdefault(wanted.group, Verdict()).add(verdict)
    if found:
        verdicts["unknown"] = Verdict(altered=sum(map(len, found.values())))
    return verdicts


def _judge_one(
    wanted: Wanted, sent: Sent, arrivals: Sequence[Arrival], dead_letter_topic: str
) -> Verdict:
    verdict = Verdict(sent=1, arrived=len(arrivals), missing=int(not arrivals))
    verdict.twice = max(0, len(arrivals) - 1)
    for arrival in arrivals:
        if wanted.reason is None:
            lateness_ms = arrival.seen_ms - max(due_ms(wanted, sent), sent.timestamp_ms)
            verdict.lateness_ms.append(lateness_ms)
            verdict.early += arrival.appended_ms < due_ms(wanted, sent)
            verdict.altered += not _is_faithful(wanted, sent, arrival)
        else:
            verdict.altered += not _is_right_dead_letter(wanted, sent, arrival, dead_letter_topic)
    return verdict


def _is_faithful(wanted: Wanted, sent: Sent, arrival: Arrival) -> bool:
    """Right topic and partition, key, value and own headers byte for byte, true stamps."""
    own = [header for header in arrival.headers if not header[0].startswith(PREFIX)]
    return (
        arrival.topic == wanted.topic
        and (arrival.key, arrival.value, own)
        == (wanted.target_key, wanted.value, wanted.own_headers)
        and wanted.partition in {None, arrival.partition}
        and arrival.header(ORIGIN) == sent.origin.encode()
        and _is_true_due(wanted, sent, arrival)
    )


def _is_true_due(wanted: Wanted, sent: Sent, arrival: Arrival) -> bool:
    return arrival.header(DUE) == str(due_ms(wanted, sent)).encode()


def _is_right_dead_letter(wanted: Wanted, sent: Sent, arrival: Arrival, topic: str) -> bool:
    return (
        arrival.topic == topic
        and (arrival.key, arrival.value) == (wanted.key, wanted.value)
        and set(wanted.all_headers) <= set(arrival.headers)
        and arrival.header(ERROR) == (wanted.reason or "").encode()
        and arrival.header(ORIGIN) == sent.origin.encode()
    )
