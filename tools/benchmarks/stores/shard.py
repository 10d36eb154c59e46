"""A store with optional ids, used like a shard of the proxy."""

from pathlib import Path
from typing import NamedTuple

from proxy.protocol.body import IngressPartition
from proxy.protocol.position import LAST_OFFSET, Position
from proxy.scheduling.half_messages import HalfMessages
from proxy.scheduling.identities import Identities
from proxy.scheduling.purges import Purges
from storage.ids.register import Register, open_register
from storage.opening import open_store
from storage.options import StoreKind
from storage.store import Committed, Entry, Key
from tools.benchmarks.stores.entries import START_MS, idents

BUDGET_ENTRIES = 2_048
"""Entries that `session.pipeline` handles at a time."""
PEEK_ENTRIES = 2_000


class Ended(NamedTuple):
    """Records that ended in one step. `taken_back` counts the cancelled records. `is_all` says that
    no further record is due."""

    delivered: int
    taken_back: int
    is_all: bool


class Shard:
    """Shard in a folder, created if missing. `next_offset` is the committed offset."""

    def __init__(self, store: StoreKind, folder: Path, next_offset: int, *, has_ids: bool) -> None:
        self._next_offset = next_offset
        self._ended: Key = (START_MS, -1)
        committed = Committed(*self._ended, 0, next_offset)
        self.store = open_store(store, folder, committed)
        self._register = open_register(folder / "ids", committed) if has_ids else None
        self._identities = None if self._register is None else _identities(self._register)

    def put(self, entries: list[Entry]) -> None:
        """Store new records. Their ids must be unknown."""
        if self._register is not None:
            names = idents(range(entries[0][1], entries[-1][1] + 1))
            fires_ms, offsets, targets, _bodies = zip(*entries, strict=True)
            assert self._register.put_if_new(names, fires_ms, offsets, targets)
        self.store.put(entries)
        self._next_offset = entries[-1][1] + 1

    def cancel(self, offsets: range) -> None:
        assert self._identities is not None
        names = idents(offsets)
        self._identities.look_up(names)
        for at, ident in enumerate(names, self._next_offset):
            self._identities.cancel(at, ident)
        self._next_offset += len(names)

    def maintain(self) -> None:
        """Do a bounded piece of maintenance. All records count as committed."""
        self.store.maintain(self._next_offset, BUDGET_ENTRIES)
        if self._register is not None:
            floor = self.store.floor(self._next_offset)
            self._register.maintain(min(self._next_offset, self.store.covered), floor)

    def end_due(self, now_ms: int) -> Ended:
        found, is_all = self.store.due(now_ms, PEEK_ENTRIES)
        upto: Key = (now_ms, LAST_OFFSET) if is_all else found[-1][:2]
        taken_back = 0
        if self._register is not None:
            deleted = self._register.tombstones(self._ended, upto)
            taken_back = sum(entry[:2] in deleted for entry in found)
            self._register.advance(*upto)
        self.store.advance(*upto)
        self._ended = upto
        return Ended(len(found) - taken_back, taken_back, is_all)

    def flush(self) -> None:
        self.store.flush(self._next_offset)
        if self._register is not None:
            self._register.flush(self.store.covered, self.store.floor(self._next_offset))

    def close(self) -> None:
        if self._register is not None:
            self._register.close()
        self.store.close()


def _identities(register: Register) -> Identities:
    position = Position.start(0, "policy", "topic")
    halves = HalfMessages(lambda _offsets: {}, position)
    purges = Purges(IngressPartition("ingress", 0), register, position)
    return Identities(register, halves, purges, position)
