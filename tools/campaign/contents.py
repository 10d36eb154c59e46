"""Topics of a finished run, in which faults are planted. Audits read them at several moments."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spark_jobs.kafka.snapshot import Committed
from spark_jobs.requests.error_codes import HOP_BAD
from tools.campaign.scene import LAST, OWN

Headers = list[tuple[str, bytes | None]]
DELIVERED, PENDING, MOVED = "delivered", "pending", "moved"
PURGED = "purged by "


@dataclass(slots=True)
class Held:
    """Record of a topic. `since` is the number of the first moment at which the record exists."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    since: int

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    def header(self, name: str) -> bytes | None:
        return dict(self.headers).get(name)

    def text(self, name: str) -> str | None:
        value = self.header(name)
        return None if value is None else value.decode("utf-8", "replace")

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return int(text) if text and text.isdigit() else None

    def said(self) -> dict[str, Any]:
        return dict(json.loads(self.value or b"{}"))

    def say(self, **changes: Any) -> None:
        fields = {**self.said(), **changes}
        self.value = json.dumps(fields, separators=(",", ":")).encode()
        self.key = str(fields["origin"]).encode()

    def set_header(self, name: str, value: bytes | None) -> None:
        self.headers = [(n, value if n == name else v) for n, v in self.headers]

    def copy(self) -> Held:
        return replace(self, headers=[*self.headers])


@dataclass(frozen=True, slots=True)
class Moment:
    """Moment at which an audit reads the topics. `committed` and `log_ends` are by ingress
    partition. `served` holds the policies (first offset, digest) of each partition, from the
    settings topic."""

    at_ms: int
    committed: Mapping[int, Committed]
    log_ends: Mapping[int, int]
    served: Mapping[int, tuple[tuple[int, str], ...]]


@dataclass(slots=True)
class Contents:
    """Topics of a run at the last moment, with the proxy's position at every moment. `log_starts`
    and `read_to` are the first offset and the end offset that an audit reads of an ingress
    partition. A partition without them is read as a whole."""

    run: int
    ingress: list[Held]
    others: list[Held]
    moments: list[Moment]
    policies: dict[str, str]
    partition_counts: dict[str, int]
    next_offsets: dict[str, int] = field(default_factory=dict)
    log_starts: dict[int, int] = field(default_factory=dict)
    read_to: dict[int, int] = field(default_factory=dict)

    def copy(self) -> Contents:
        return replace(
            self,
            ingress=[one.copy() for one in self.ingress],
            others=[one.copy() for one in self.others],
            moments=[*self.moments],
            next_offsets={},
        )

    def add(self, one: Held) -> Held:
        log = self.ingress if one.topic == OWN.ingress else self.others
        last = max((o.offset for o in log if _same_log(o, one)), default=one.offset)
        one.offset = max(last, self.next_offsets.get(_log(one), 0)) + 1
        self.next_offsets[_log(one)] = one.offset
        log.append(one)
        return one

    def remove(self, *gone: Held | None) -> None:
        names = {id(one) for one in gone}
        self.ingress = [one for one in self.ingress if id(one) not in names]
        self.others = [one for one in self.others if id(one) not in names]

    def move_positions(self, partition: int, **changes: int) -> None:
        """Lower the proxy's `next_offset` or `watermark_ms` to the value in `changes`, at each
        moment at which it is higher."""
        self.moments = [_held_back(one, partition, changes) for one in self.moments]

    def extend_log(self, partition: int, end: int) -> None:
        """Set the log end of the last moment, as if the proxy had read the partition to there."""
        last = self.moments[LAST]
        stood = replace(last.committed[partition], next_offset=end)
        self.moments[LAST] = replace(
            last,
            committed={**last.committed, partition: stood},
            log_ends={**last.log_ends, partition: end},
        )

    def records(self) -> list[Ended]:
        by_origin: dict[str, list[Held]] = defaultdict(list)
        for one in self.others:
            by_origin[_origin_of(one)].append(one)
        said = [one.said() for one in self.others if one.topic == OWN.outcomes]
        took = {one.get("next_origin") for one in said if one.get("detail") == MOVED}
        forged = {
            letter.text("timer-origin")
            for letter in self.others
            if letter.topic == OWN.dead_letters and letter.text("timer-error") == HOP_BAD
        }
        successors = {
            f"{OWN.ingress}/{one.partition}/{one.number('timer-hop-from')}": one
            for one in self.ingress
            if (hop_from := one.number("timer-hop-from")) is not None
            and hop_from < one.offset
            and one.place not in forged
            and one.header("timer-transaction") is None
            and (one.header("timer-hop-fires") is None or one.place in took)
        }
        committed = self.moments[LAST].committed
        return [
            _ended(one, by_origin[one.place], successors, committed[one.partition])
            for one in self.ingress
        ]


@dataclass(slots=True)
class Ended:
    """Ingress record with its ends: deliveries, outcomes and dead letters. `end` is `delivered`,
    `pending`, or the outcome's name. If the outcome's detail is `moved`, `end` is `moved`.
    `purged_by` is the origin of a purge that the outcome names."""

    record: Held
    kind: str
    end: str
    deliveries: list[Held]
    outcomes: list[Held]
    letters: list[Held]
    successor: Held | None
    is_read: bool
    purged_by: str | None

    @property
    def origin(self) -> str:
        return self.record.place

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def delivery(self) -> Held:
        return self.deliveries[0]

    @property
    def outcome(self) -> Held:
        return self.outcomes[0]

    @property
    def letter(self) -> Held:
        return self.letters[0]

    @property
    def code(self) -> str | None:
        return self.letter.text("timer-error") if self.letters else None

    @property
    def ident(self) -> bytes | None:
        cancelled = self.record.header("timer-cancel")
        return self.record.header("timer-id") if cancelled is None else cancelled

    @property
    def recalled(self) -> str | None:
        return self.record.text("timer-recall") if self.kind == "recall" else None

    @property
    def outcome_has_id(self) -> bool:
        return bool(self.outcomes) and self.outcome.said()["id"] is not None

    @property
    def hop_from(self) -> int | None:
        return self.record.number("timer-hop-from")

    @property
    def due_ms(self) -> int:
        if self.deliveries:
            return self.delivery.number("timer-due") or 0
        return int(self.outcome.said()["due"] or 0) if self.outcomes else 0

    @property
    def wanted_ms(self) -> int:
        return max(self.due_ms, self.record.number("timer-hop-not-before") or 0)

    @property
    def first_ms(self) -> int:
        return max(self.due_ms, self.record.timestamp_ms)

    @property
    def is_plain(self) -> bool:
        """Return whether the record is a producer's timer record without an id. No other record
        depends on such a record."""
        return self.kind == "record" and self.ident is None and self.hop_from is None


def by_place(records: Iterable[Ended]) -> dict[tuple[int, int], Ended]:
    return {(one.partition, one.record.offset): one for one in records}


def _ended(
    record: Held, ends: Sequence[Held], successors: Mapping[str, Held], committed: Committed
) -> Ended:
    deliveries = [one for one in ends if one.topic not in {OWN.outcomes, OWN.dead_letters}]
    outcomes = [one for one in ends if one.topic == OWN.outcomes]
    letters = [one for one in ends if one.topic == OWN.dead_letters]
    end = DELIVERED if deliveries else outcomes[0].said()["outcome"] if outcomes else PENDING
    is_read = record.offset < (committed.next_offset or 0)
    detail = str(outcomes[0].said().get("detail")) if outcomes else ""
    end = MOVED if not deliveries and detail == MOVED else end
    purged_by = detail.removeprefix(PURGED) if detail.startswith(PURGED) else None
    return Ended(
        record,
        _kind(record),
        end,
        deliveries,
        outcomes,
        letters,
        successors.get(record.place),
        is_read,
        purged_by,
    )


def _kind(record: Held) -> str:
    if any(name == "timer-cancel" for name, _ in record.headers):
        return "cancel"
    if any(name == "timer-recall" for name, _ in record.headers):
        return "recall"
    if any(name == "timer-purge" for name, _ in record.headers):
        return "purge"
    return record.text("timer-transaction") or "record"


def _origin_of(one: Held) -> str:
    if one.topic == OWN.outcomes:
        return (one.key or b"").decode()
    return one.text("timer-origin") or ""


def _log(one: Held) -> str:
    return f"{one.topic}/{one.partition}"


def _same_log(one: Held, other: Held) -> bool:
    return one.topic == other.topic and one.partition == other.partition


def _held_back(moment: Moment, partition: int, most: Mapping[str, int]) -> Moment:
    stood = moment.committed[partition]
    back: dict[str, Any] = {
        name: min(value, getattr(stood, name))
        for name, value in most.items()
        if getattr(stood, name) is not None
    }
    return replace(moment, committed={**moment.committed, partition: replace(stood, **back)})
