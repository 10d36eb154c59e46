"""An entry of the schedule as it is worked with once it is due."""

from typing import NamedTuple

from proxy.records.body import Headers, last_header, parts_of
from proxy.records.headers import HOP_NOT_BEFORE, HOP_RESUMED, PARKED
from storage.store import Entry


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

    @property
    def is_parked(self) -> bool:
        """Whether it waits for the end of a pause."""
        return self.wanted_ms > self.due_ms and self.header(HOP_NOT_BEFORE) == PARKED

    @property
    def resumed_ms(self) -> int | None:
        """The end of the pause in whose queue it has its place; None: it is in no such queue."""
        raw = self.header(HOP_RESUMED) if self.wanted_ms > self.due_ms else None
        return None if raw is None else int(raw)

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return last_header(self.headers, name)


class LeftInKafka(NamedTuple):
    """An entry whose body, of so many bytes, is in the ingress alone."""

    due_ms: int
    offset: int
    target: str
    size_bytes: int


def delivery_of(entry: Entry) -> Delivery:
    """What is to be delivered, of an entry with or without a purpose of its own."""
    fires_ms, offset, target, body = entry
    purpose, (partition, key, value, headers) = parts_of(body, target, fires_ms)
    due_ms, origin, wanted_ms = purpose or (fires_ms, offset, fires_ms)
    return Delivery(
        due_ms, origin, target, partition, key, value, headers, offset, fires_ms, wanted_ms
    )
