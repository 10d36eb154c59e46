"""An entry of the schedule as it is worked with once it is due, or shown."""

from __future__ import annotations

from typing import NamedTuple

from proxy.records.body import Headers, content_of
from proxy.records.entry import MARK, purpose_of
from proxy.records.headers import ENTRY
from storage.store import Entry


class Delivery(NamedTuple):
    """An entry, unpacked. `offset` is that of the ingress record to be delivered.

    (fires_ms, entry_offset) is the entry's key; `wanted_ms` when the record may be delivered at the
    soonest, `due_ms` what it asked for (`proxy.records.entry`).
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
