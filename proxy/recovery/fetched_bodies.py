"""A store that keeps no record bytes: they are read back from the ingress when due.

The entries on disk carry a stub in place of the body (`proxy.records.body`). A folder may hold
both, after the setting `bodies` was changed: what has its body is used as it is.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from proxy.records.body import GONE_BODY, body_bytes, has_purpose, is_stub, packer, stub
from proxy.records.delivery import delivery_of
from proxy.records.message import Message
from proxy.requests.parsed import ParsedRecord, Scheduled
from storage.store import PEEK_BYTES, Due, Entry, Store

BUDGET_S: Final = 1.0
"""Reading goes on as long; then what is there is delivered first."""
JUMP_S: Final = 0.002
JUMP_BYTES: Final = 512 * 1024
"""Measured: a jump to an offset takes as long as reading on through so many bytes."""
JUMP_RECORDS: Final = 2_000
"""And as long as reading on through so many records, however small."""
LEAST_CHUNK: Final = 64

ReadBack: TypeAlias = Callable[[Sequence[int], int], Mapping[int, Message]]
"""(ascending offsets, gap that is better read through) -> records that are still there."""


class FetchedBodies:
    """The `inner` store with its stubs made whole; it is used as any `storage.store.Store`.

    `read` says what a record read back asks for, as when it was ingested. With
    `stores_stubs` new entries lose their bodies; without, only older stubs are made whole.
    """

    def __init__(
        self,
        inner: Store,
        read_back: ReadBack,
        read: Callable[[Message], ParsedRecord],
        *,
        stores_stubs: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner, self._read_back, self._read = inner, read_back, read
        self._stores_stubs, self._now_s = stores_stubs, now_s
        self._held: dict[int, Entry] = {}
        self._held_bytes = 0
        self._pack = packer()
        self.floor = inner.floor
        self.next_due_ms = inner.next_due_ms
        self.pending = inner.pending
        self.pending_by_target = inner.pending_by_target
        self.pending_bytes = inner.pending_bytes
        self.pending_bytes_by_target = inner.pending_bytes_by_target
        self.pending_by_time = inner.pending_by_time
        self.scan = inner.scan
        self.maintain = inner.maintain
        self.request_flush = inner.request_flush
        self.flush = inner.flush
        self.close = inner.close

    @property
    def covered(self) -> int:
        return self._inner.covered

    @property
    def memtable_bytes(self) -> int:
        return self._inner.memtable_bytes

    @property
    def peeked_bytes(self) -> int:
        return self._inner.peeked_bytes + self._held_bytes

    def put(self, entries: Iterable[Entry]) -> None:
        if self._stores_stubs:
            entries = [_stubbed(entry) for entry in entries]
        self._inner.put(entries)

    def due(self, now_ms: int, max_entries: int, max_bytes: int = PEEK_BYTES) -> Due:
        """As many of the first due entries as `max_bytes` and time allow, one at least."""
        found = self._inner.due(now_ms, max_entries, max_bytes)
        fitting = _fitting(found.entries, max_bytes)
        if self._held_bytes > 2 * max_bytes:
            self._keep_only(fitting)
        self._fetch(fitting)
        whole = self._whole(fitting)
        return Due(whole, found.is_all and len(whole) == len(found.entries))

    def advance(self, watermark_ms: int, cursor: int) -> None:
        self._inner.advance(watermark_ms, cursor)
        if self._held:
            self._hold(e for e in self._held.values() if e[:2] > (watermark_ms, cursor))

    def _hold(self, entries: Iterable[Entry]) -> None:
        self._held = {entry[1]: entry for entry in entries}
        self._held_bytes = sum(len(entry[3]) for entry in self._held.values())

    def _keep_only(self, fitting: Sequence[Entry]) -> None:
        """Bound what is held: newcomers due earlier may have pushed what was read to the rear."""
        self._hold([self._held[entry[1]] for entry in fitting if entry[1] in self._held])

    def _fetch(self, entries: Sequence[Entry]) -> None:
        """Read back what is not held yet, from the front, until the time is up."""
        missing = [e for e in entries if e[1] not in self._held and is_stub(e[3])]
        until_s = self._now_s() + BUDGET_S
        while missing and (left_s := until_s - self._now_s()) > 0:
            gap = _gap(missing)
            chunk = _chunk(missing, gap, left_s)
            records = self._read_back(sorted(entry[1] for entry in chunk), gap)
            for entry in chunk:
                whole = self._made_whole(entry, records.get(entry[1]))
                self._held[entry[1]] = whole
                self._held_bytes += len(whole[3])
            del missing[: len(chunk)]

    def _made_whole(self, entry: Entry, record: Message | None) -> Entry:
        if record is None:
            return self._without_record(entry)
        parsed = self._read(record)
        assert isinstance(parsed, Scheduled), entry
        assert parsed.entry[:3] == entry[:3], (entry, parsed.entry[:3])
        return parsed.entry

    def _without_record(self, entry: Entry) -> Entry:
        """What it asked for is gone with it: of the times there is only when it fires."""
        return (*entry[:3], GONE_BODY)

    def _whole(self, fitting: Sequence[Entry]) -> list[Entry]:
        """The entries up to the first whose body is still missing."""
        whole: list[Entry] = []
        for entry in fitting:
            made = self._held.get(entry[1]) or entry
            if made is entry and is_stub(entry[3]):
                break
            whole.append(made)
        return whole


def _stubbed(entry: Entry) -> Entry:
    """The entry without its body, unless that is another record's than the one at its offset."""
    if has_purpose(entry[3]) and delivery_of(entry).offset != entry[1]:
        return entry
    return (*entry[:3], stub(entry[3]))


def _fitting(entries: list[Entry], max_bytes: int) -> list[Entry]:
    """As many of the first entries as their whole bodies take at most `max_bytes`; one at least."""
    size_bytes = 0
    for index, entry in enumerate(entries):
        size_bytes += body_bytes(entry[3])
        if size_bytes > max_bytes and index:
            return entries[:index]
    return entries


def _gap(entries: Sequence[Entry]) -> int:
    """The gap, in offsets, that is read through: by the mean size of these entries."""
    size_bytes = sum(body_bytes(entry[3]) for entry in entries)
    return min(JUMP_RECORDS, JUMP_BYTES * len(entries) // max(size_bytes, 1))


def _chunk(entries: Sequence[Entry], gap: int, left_s: float) -> Sequence[Entry]:
    """So many of the first entries that reading them takes about `left_s`.

    Many are read faster together than one by one, since the gaps between their offsets are small.
    """
    chunk = entries
    while len(chunk) > LEAST_CHUNK and _cost_s(chunk, gap) > left_s:
        chunk = chunk[: len(chunk) // 2]
    return chunk


def _cost_s(entries: Sequence[Entry], gap: int) -> float:
    """How long reading these back takes, about: jumps, or what is read on through instead."""
    offsets = sorted(entry[1] for entry in entries)
    steps = (after - before for before, after in pairwise(offsets))
    return JUMP_S * (1 + sum(min(step / max(gap, 1), 1) for step in steps))
