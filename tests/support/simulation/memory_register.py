"""Simplest Register, made of dicts. Tests compare the real register with it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from storage.ids.memtable import FOREVER_MS, Link
from storage.ids.register import Register
from storage.store import Key, Named, TargetCounts


class MemoryRegister(Register):
    """Register that forgets only useless ids. It does not survive a restart."""

    covered = memtable_bytes = 0

    def __init__(self) -> None:
        self._ids: dict[bytes, Named] = {}
        self._tombstones: dict[Key, str] = {}
        self._links: list[Link] = []
        self._ended: Key = (-1, -1)

    def find(self, ids: Iterable[bytes]) -> dict[bytes, Named]:
        return {ident: self._ids[ident] for ident in ids if ident in self._ids}

    def put(self, at: int, ident: bytes, named: Named) -> None:
        self._ids[ident] = named

    def put_if_new(
        self,
        ids: Sequence[bytes],
        fires_ms: Sequence[int],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> bool:
        if len(set(ids)) < len(ids) or self.find(ids):
            return False
        for ident, due_ms, at, target in zip(ids, fires_ms, offsets, targets, strict=True):
            self.put(at, ident, Named(at, due_ms, at, at, due_ms, target))
        return True

    def add_tombstone(self, at: int, key: Key, target: str) -> None:
        if key > self._ended:
            self._tombstones[key] = target

    def tombstones(self, after: Key, upto: Key) -> set[Key]:
        return {key for key in self._tombstones if after < key <= upto}

    def deleted(self, keys: Sequence[Key]) -> set[Key]:
        return self._tombstones.keys() & set(keys)

    def tombstones_by_target(self) -> TargetCounts:
        return TargetCounts(Counter(self._tombstones.values()))

    def link(self, at: int, low: int, high: int, until_ms: int | None) -> None:
        self._links.append((low, high, FOREVER_MS if until_ms is None else until_ms))

    def lowered(self, floor: int) -> int:
        self._links = [link for link in self._links if link[2] >= self._ended[0]]
        floor = lowered_by(self._links, floor)
        self._links = [link for link in self._links if link[1] >= floor]
        return floor

    def of_kind(self, bit: int) -> Iterator[tuple[bytes, Named]]:
        for ident, named in list(self._ids.items()):
            if named.kind & bit and named.key > self._ended:
                yield ident, named

    def advance(self, watermark_ms: int, cursor: int) -> None:
        self._ended = max(self._ended, (watermark_ms, cursor))
        self._tombstones = {key: t for key, t in self._tombstones.items() if key > self._ended}

    def maintain(self, settled_offset: int, floor: int) -> bool:
        useless = [
            ident
            for ident, named in self._ids.items()
            if max(named.latest, named.offset) < floor
            and (named.offset < 0 or named.key <= self._ended)
        ]
        for ident in useless:
            del self._ids[ident]
        return False

    def request_flush(self) -> None:
        return None

    def flush(self, settled_offset: int, floor: int) -> None:
        return None

    def close(self) -> None:
        return None


def lowered_by(links: Sequence[Link], floor: int) -> int:
    """Return the highest floor at or below `floor` outside every (low, high] of `links`."""
    for low, high, _until_ms in sorted(links, key=lambda link: -link[1]):
        if low < floor <= high:
            floor = low
    return floor
