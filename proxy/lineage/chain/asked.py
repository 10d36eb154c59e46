"""What an ingress record asks for, as far as a trace has to know it: where to look for its end."""

from typing import Final, NamedTuple

from proxy.lineage.chain.traced_record import TracedRecord
from proxy.protocol.body import delivery_of
from proxy.protocol.headers import ID, TOPIC, text_of
from proxy.protocol.parsed import Cancel, Decision, Prepare, Recall, Scheduled
from proxy.protocol.request_reader import RequestReader

DELIVERY: Final = "delivery"
HALF_MESSAGE: Final = "half message"
REJECTED: Final = "rejected"


class Asked(NamedTuple):
    """What one record asks for, by the settings that the command was given.

    kind: DELIVERY, HALF_MESSAGE, REJECTED, `cancel`, `recall`, or what a record decides about a
    half message. `recalled`: the offset that a recall names.
    `partition` (-1: by the `key`) and `key` are those at the target.
    """

    kind: str
    target: str | None = None
    due_ms: int | None = None
    partition: int = -1
    key: bytes | None = None
    ident: bytes | None = None
    check_topic: str | None = None
    recalled: int | None = None

    @property
    def is_control(self) -> bool:
        """Whether it is about another record, and nothing is delivered of it."""
        return self.kind not in {DELIVERY, HALF_MESSAGE, REJECTED}


def read_asked(record: TracedRecord, reader: RequestReader) -> Asked:
    """What a record asks for.

    Where today's settings reject it, those at its time may have taken it: its target is looked at
    all the same.
    """
    place = record.place
    parsed = reader.read(
        record.headers,
        record.key,
        record.value,
        record.timestamp_ms,
        place.partition,
        place.offset,
    )
    match parsed:
        case Scheduled() | Prepare():
            return _of_entry(parsed)
        case Cancel(ident):
            return Asked("cancel", ident=ident)
        case Recall(offset):
            return Asked("recall", recalled=offset)
        case Decision(ident, what, _):
            return Asked(what, ident=ident)
    target = record.header(TOPIC)
    return Asked(REJECTED, None if target is None else text_of(target), ident=record.header(ID))


def _of_entry(parsed: Scheduled | Prepare) -> Asked:
    delivery = delivery_of(parsed.entry)
    kind, check_topic = DELIVERY, None
    if isinstance(parsed, Prepare):
        kind, check_topic = HALF_MESSAGE, parsed.check_topic
    return Asked(
        kind,
        delivery.target,
        parsed.due_ms,
        delivery.partition,
        delivery.key,
        parsed.ident,
        check_topic,
    )
