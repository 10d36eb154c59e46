"""What a producer gets back for a record that is stored."""

from typing import NamedTuple

from confluent_kafka import Message

UNKNOWN = -1


class Receipt(NamedTuple):
    """Where the ingress has the record.

    `timestamp_ms` is the record's own as the topic keeps it: what a delay counts from; -1 without
    one. `offset` is -1 in the rare case that the broker confirms a repeated request only. `key` is
    the one that the record has in the ingress, by which `recall` proves that it knows the record.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None = None

    @property
    def origin(self) -> str:
        """`topic/partition/offset`, as `timer-origin` at the target and in the outcomes says it."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def receipt_of(message: Message) -> Receipt:
    """The receipt in a successful delivery report."""
    partition, offset = message.partition(), message.offset()
    return Receipt(
        message.topic() or "",
        UNKNOWN if partition is None else partition,
        UNKNOWN if offset is None or offset < 0 else offset,
        message.timestamp()[1],
        message.key(),
    )
