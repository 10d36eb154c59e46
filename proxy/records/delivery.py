"""An entry of the schedule as it is worked with once it is due, and what it is for.

Most entries are delivered at their own time under their own offset. Those that are not have a mark
before their target's name, which no topic name can have, and a private header in their body.
"""

from typing import Final, NamedTuple

from proxy.records.body import Content, Headers, content_of
from proxy.records.headers import ENTRY
from storage.store import Entry

MARK: Final = "!"


class Purpose(NamedTuple):
    """What an entry is for, where that is more than to be delivered at its time.

    due_ms: what the record asked for. origin: offset of the ingress record to be delivered.
    wanted_ms: when it may be delivered at the soonest: at or after due_ms. An entry that fires
    before that is rewritten instead.
    """

    due_ms: int
    origin: int
    wanted_ms: int

    def header(self) -> tuple[str, bytes]:
        """The private header that carries it."""
        return ENTRY, b"%d/%d/%d" % self


def marked(target: str) -> str:
    """The target of an entry that has a purpose of its own: dispatch looks at each such entry."""
    return MARK + target


def is_marked(entry_target: str) -> bool:
    """Whether an entry for this target has a purpose of its own."""
    return entry_target[0] == MARK


def target_of(entry_target: str) -> str:
    """The topic that an entry is meant for, marked or not."""
    return entry_target.removeprefix(MARK)


def purpose_of(headers: Headers) -> Purpose:
    """What the headers of a marked entry say."""
    written = [raw for name, raw in headers if name == ENTRY][-1]
    assert written is not None
    return Purpose(*map(int, written.split(b"/")))


def with_purpose(content: Content, purpose: Purpose) -> Content:
    """The content of a marked entry."""
    partition, key, value, headers = content
    return partition, key, value, [*headers, purpose.header()]


class Delivery(NamedTuple):
    """An entry, unpacked. `offset` is that of the ingress record to be delivered.

    (fires_ms, entry_offset) is the entry's key; `wanted_ms` when the record may be delivered at the
    soonest, `due_ms` what it asked for.
    """

    due_ms: int
    offset: int
    target: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    entry_offset: int
    fires_ms: int
    wanted_ms: int

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return next((raw for found, raw in reversed(self.headers) if found == name), None)


class LeftInKafka(NamedTuple):
    """An entry whose body, of so many bytes, is in the ingress alone."""

    due_ms: int
    offset: int
    target: str
    size_bytes: int


def delivery_of(entry: Entry) -> Delivery:
    """What is to be delivered, of an entry with or without a purpose of its own."""
    fires_ms, offset, target, body = entry
    partition, key, value, headers = content_of(body)
    if target[0] != MARK:
        return Delivery(
            fires_ms, offset, target, partition, key, value, headers, offset, fires_ms, fires_ms
        )
    purpose = purpose_of(headers)
    kept = [header for header in headers if header[0] != ENTRY]
    return Delivery(
        purpose.due_ms,
        purpose.origin,
        target[1:],
        partition,
        key,
        value,
        kept,
        offset,
        fires_ms,
        purpose.wanted_ms,
    )
