"""What aborted attempts of a transaction teach about single records (DESIGN 5.9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError

from proxy.records.body import Headers
from proxy.records.rejection import Rejection

Place: TypeAlias = tuple[str, int]
"""Origin prefix and offset: names one ingress record."""

REFUSED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not-authorised",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "target-unknown",
    KafkaError.TOPIC_EXCEPTION: "target-illegal",
    KafkaError._UNKNOWN_TOPIC: "target-unknown",
    KafkaError._UNKNOWN_PARTITION: "partition-bad",
    KafkaError.INVALID_MSG: "publish-failed",
    KafkaError.RECORD_LIST_TOO_LARGE: "too-large",
    KafkaError.INVALID_RECORD: "publish-failed",
    KafkaError.POLICY_VIOLATION: "publish-failed",
    KafkaError.INVALID_TIMESTAMP: "publish-failed",
}
"""Errors that a record meets again each time; all others are the broker's or the network's."""

BY_BATCH: Final = frozenset({"too-large", "publish-failed"})
"""These may be reported of every record of a batch, though one alone is at fault."""

BATCH_BYTES: Final = 61
"""A record batch of format 2 without its records (KIP-98)."""
IN_COMPANY_BYTES: Final = 10
"""What a record may take more behind others: larger deltas of offset and time."""


class Reported(NamedTuple):
    """A delivery report that says no, of a record or of its dead letter."""

    error: KafkaError
    topic: str
    is_dead: bool


@dataclass(slots=True)
class Lessons:
    """Which records are refused for good, and which have to be sent with more care.

    The broker refuses batches as a whole: one that is too large, though each record may be small,
    or one of which a single record is invalid. So its topic becomes `narrow` first: its rules are
    asked for and kept. A record refused all the same goes `alone`; what fails then is `refused`,
    and a dead letter loses its value.
    """

    refused: dict[Place, Rejection] = field(default_factory=dict)
    bare: set[Place] = field(default_factory=set)
    narrow: set[str] = field(default_factory=set)
    alone: set[tuple[str, Place]] = field(default_factory=set)
    reported: dict[Place, Reported] = field(default_factory=dict)

    def draw(self) -> int:
        """Turn the last attempt's reports into lessons; how many records taught something."""
        was_narrow = set(self.narrow)
        learnt = sum(
            self._draw_one(place, report, was_narrow) for place, report in self.reported.items()
        )
        self.reported = {}
        return learnt

    def _draw_one(self, place: Place, report: Reported, was_narrow: set[str]) -> bool:
        code = REFUSED.get(report.error.code())
        if code is None or (report.is_dead and code != "too-large"):
            return False
        if code in BY_BATCH and report.topic not in was_narrow:
            self.narrow.add(report.topic)
        elif code in BY_BATCH and (report.topic, place) not in self.alone:
            self.alone.add((report.topic, place))
        elif report.is_dead:
            self.bare.add(place)
        else:
            why = f"the broker refused the record: {report.error.str()}"
            self.refused[place] = Rejection(code, why)
        return True


def batch_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Size of the batch that holds this record alone, uncompressed (KIP-98, record format 2)."""
    size_bytes = 3 + _sized(key) + _sized(value) + _varint_bytes(len(headers))
    size_bytes += sum(_sized(name.encode()) + _sized(content) for name, content in headers)
    return BATCH_BYTES + _varint_bytes(size_bytes) + size_bytes


def _sized(content: bytes | None) -> int:
    return 1 if content is None else _varint_bytes(len(content)) + len(content)


def _varint_bytes(number: int) -> int:
    """Length of a zigzag varint: 6 bits of the number in the first byte, 7 in the others."""
    return (number.bit_length() + 7) // 7
