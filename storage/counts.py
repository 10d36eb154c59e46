"""Counts of pending entries by target, by time and by offset."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.options import MOST_NAMES, MOST_NUMBERS
from storage.store import Column, Entry, TargetCounts

UNNAMED = MOST_NUMBERS
"""Stands for a target without a number. The target's name is stored before the body."""
_NAME = Struct("<H")


class _Numbers(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return UNNAMED


class TargetNumbers:
    """Numbers for at most `most` target names, which are counted by name.

    A name keeps its number while its entries are pending, so counts are exact. Once the table was
    full, it takes new names only after all entries of targets without a number have ended."""

    def __init__(
        self,
        names: Mapping[int, str] | None = None,
        most: int = MOST_NAMES,
        *,
        is_closed: bool = False,
    ) -> None:
        self.by_number: dict[int, str] = dict(names or {})
        self.by_name = _Numbers((name, number) for number, name in self.by_number.items())
        self._most = most
        self._next = 1 + max(self.by_number, default=-1)
        self._free = [at for at in range(self._next) if at not in self.by_number]
        self._is_closed = is_closed
        self._new_names = 0

    def has(self, name: str) -> bool:
        """Number `name` if there is room. Return whether its entries are counted by name."""
        return name in self.by_name or self._take(name)

    @property
    def wants_release(self) -> bool:
        """Whether `release` is worth its cost: `most` new names came since the last release."""
        return self._new_names >= self._most

    def release(self, used: Container[str]) -> None:
        """Free the numbers of names not in `used`. All pending entries must have a number."""
        unused = [name for name in self.by_name if name not in used]
        for name in unused:
            number = self.by_name.pop(name)
            del self.by_number[number]
            self._free.append(number)
        self._is_closed, self._new_names = False, 0

    def prefix_bytes(self, name: str) -> int:
        return _NAME.size + len(name.encode())

    def columns_of(self, entries: Sequence[Entry]) -> tuple[Column, list[bytes]]:
        """Return target numbers and bodies. The name of an unnumbered target precedes the body."""
        bodies = [entry[3] for entry in entries]
        found = map(self.by_name.__getitem__, [entry[2] for entry in entries])
        numbers = np.fromiter(found, np.int64, len(entries))
        for at in np.flatnonzero(numbers == UNNAMED).tolist():
            name = entries[at][2].encode()
            bodies[at] = b"".join((_NAME.pack(len(name)), name, bodies[at]))
        return numbers, bodies

    def _take(self, name: str) -> bool:
        self._new_names += 1
        if self._is_closed or len(self.by_name) >= self._most:
            self._is_closed = True
            return False
        if not self._free:
            self._free.append(self._next)
            self._next += 1
        number = self.by_name[name] = self._free.pop()
        self.by_number[number] = name
        return True


def resolved(
    names: Mapping[int, str], numbers: Column, bodies: list[bytes]
) -> tuple[list[str], list[bytes]]:
    """Return targets and bodies from the result of `columns_of`. Raises KeyError."""
    unnamed = np.flatnonzero(numbers == UNNAMED).tolist()
    if not unnamed:
        return [names[number] for number in numbers.tolist()], bodies
    bodies = list(bodies)
    targets = [names[number] if number != UNNAMED else "" for number in numbers.tolist()]
    for at in unnamed:
        targets[at], bodies[at] = _split(bodies[at])
    return targets, bodies


def _split(body: bytes) -> tuple[str, bytes]:
    end = _NAME.size + int(_NAME.unpack_from(body)[0])
    return body[_NAME.size : end].decode(), body[end:]


class TargetCounter:
    """Counts by target."""

    __slots__ = ("by_name", "numbers", "others")

    def __init__(
        self,
        numbers: TargetNumbers,
        by_name: Mapping[str, int] | None = None,
        others: int = 0,
    ) -> None:
        self.numbers = numbers
        self.by_name: Counter[str] = Counter(by_name or {})
        """Counts of targets with a number."""
        self.others = others
        """Sum of the counts of all other targets."""

    def add(self, counts: Mapping[str, int]) -> None:
        has_number = self.numbers.has
        for name, count in counts.items():
            if has_number(name):
                self.by_name[name] += count
            else:
                self.others += count

    def add_known(self, counts: Mapping[str, int]) -> None:
        """Add counts, but give no target a number. `others` gets the unnumbered targets."""
        by_name, others = self._split(counts)
        self.by_name.update(by_name)
        self.others += others

    def remove(self, counts: Mapping[str, int]) -> None:
        self.subtract(*self._split(counts))

    def subtract(self, by_name: Mapping[str, int], others: int) -> None:
        self.others -= others
        for name, ended in by_name.items():
            left = self.by_name[name] - ended
            if left > 0:
                self.by_name[name] = left
            else:
                del self.by_name[name]

    def merge(self, other: "TargetCounter") -> None:
        self.by_name.update(other.by_name)
        self.others += other.others

    def copy(self, numbers: TargetNumbers | None = None) -> "TargetCounter":
        return TargetCounter(numbers or self.numbers, self.by_name, self.others)

    def total(self) -> int:
        return self.by_name.total() + self.others

    def shown(self) -> TargetCounts:
        """Return the counts. If `others` is not 0, include numbered targets with the count 0."""
        if not self.others:
            return TargetCounts(dict(self.by_name))
        return TargetCounts(dict.fromkeys(self.numbers.by_name, 0) | self.by_name, self.others)

    def _split(self, counts: Mapping[str, int]) -> tuple[dict[str, int], int]:
        numbers = self.numbers.by_name
        by_name = {name: count for name, count in counts.items() if count and name in numbers}
        return by_name, sum(counts.values()) - sum(by_name.values())


class Piece(NamedTuple):
    """A number of entries, spread evenly from `first_ms` to `last_ms`."""

    first_ms: int
    last_ms: int
    entries: float

    def beyond(self, watermark_ms: int) -> "Piece":
        if watermark_ms < self.first_ms:
            return self
        span_ms = self.last_ms - self.first_ms + 1
        left_ms = max(0, self.last_ms - watermark_ms)
        return Piece(watermark_ms + 1, self.last_ms, self.entries * left_ms / span_ms)


class DueHistogram:
    """Entry counts between ascending `edges_ms`, and before and after them."""

    def __init__(self, edges_ms: Sequence[int] | Column) -> None:
        self.edges_ms = np.asarray(edges_ms, np.int64)
        self._counts: npt.NDArray[np.float64] = np.zeros(len(edges_ms) + 1)

    def add(self, times_ms: Column, entries: Column | None = None) -> None:
        """Count one entry at each time, or `entries[i]` entries. Sorted times are faster."""
        if entries is not None and bool((times_ms[1:] >= times_ms[:-1]).all()):
            upto = np.concatenate(([0], np.cumsum(entries)))
            ends = upto[np.searchsorted(times_ms, self.edges_ms, "right")]
            self._counts += np.diff(ends, prepend=0, append=upto[-1])
            return
        places = np.searchsorted(self.edges_ms, times_ms, "left")
        self._counts += np.bincount(places, entries, self._counts.size)

    def add_evenly(self, pieces: Sequence[Piece]) -> None:
        if pieces:
            firsts_ms, lasts_ms, entries = np.array(pieces, np.float64).T[:, :, None]
            shares = (self.edges_ms - firsts_ms + 1) / (lasts_ms - firsts_ms + 1)
            upto = np.clip(shares, 0, 1) * entries
            self._counts += np.diff(upto.sum(axis=0), prepend=0, append=entries.sum())

    def join(self, other: "DueHistogram", entries: int) -> None:
        """Add the counts of `other`, scaled to a sum of `entries`."""
        counted = other._counts.sum()  # noqa: SLF001 (of the same class)
        if counted > 0:
            self._counts += other._counts * (entries / counted)  # noqa: SLF001
        else:
            self._counts[0] += entries

    def whole(self) -> list[int]:
        """Return the counts rounded to integers, with the same sum."""
        sums = np.rint(np.cumsum(self._counts)).astype(np.int64)
        counts: list[int] = np.diff(sums, prepend=0).tolist()
        return counts


FIRST_SHIFT = 0
MAX_CHUNKS = 8_192

_offset_of = itemgetter(1)
_target_of = itemgetter(2)
_body_of = itemgetter(3)


def offsets_of(entries: Sequence[Entry]) -> Column:
    """Return the offsets of `entries`."""
    return np.fromiter(map(_offset_of, entries), np.int64, len(entries))


class ChunkCounts:
    """Pending entries by chunk of 2**shift offsets. Above MAX_CHUNKS, chunks double in size."""

    def __init__(self, shift: int = FIRST_SHIFT, base: int = 0, counts: Column | None = None):
        self.shift = shift
        self.base = base
        self.counts = np.zeros(0, np.int64) if counts is None else counts
        self.total = int(self.counts.sum())
        self._lowest = 0

    def add(self, offsets: Column) -> None:
        if not offsets.size:
            return
        self._fit(int(offsets.min()), int(offsets.max()))
        np.add.at(self.counts, (offsets >> self.shift) - self.base, 1)
        self._lowest = min(self._lowest, (int(offsets.min()) >> self.shift) - self.base)
        self.total += offsets.size

    def remove(self, offsets: Column) -> None:
        if offsets.size:
            np.subtract.at(self.counts, (offsets >> self.shift) - self.base, 1)
            self.total -= offsets.size

    def floor(self) -> int | None:
        if self.total <= 0:
            return None
        if not self.counts[self._lowest]:
            self._lowest += int(np.argmax(self.counts[self._lowest :] != 0))
        return (self.base + self._lowest) << self.shift

    def merge(self, other: "ChunkCounts") -> None:
        other = other.copy()
        used = np.flatnonzero(other.counts)
        if not used.size:
            return
        self._fit(
            (other.base + int(used[0])) << other.shift,
            ((other.base + int(used[-1]) + 1) << other.shift) - 1,
        )
        other.coarsen_to(self.shift)
        self.coarsen_to(other.shift)
        used = np.flatnonzero(other.counts)
        self.counts[used + (other.base - self.base)] += other.counts[used]
        self._lowest = min(self._lowest, int(used[0]) + other.base - self.base)
        self.total += other.total

    def take_out(self, other: "ChunkCounts") -> None:
        other = other.copy()
        self.coarsen_to(other.shift)
        other.coarsen_to(self.shift)
        first = other.base - self.base
        self.counts[first : first + other.counts.size] -= other.counts
        self.total -= other.total

    def counts_same(self, other: "ChunkCounts") -> bool:
        """Return whether both have equal counts, compared in chunks of the larger size."""
        mine, others = self.copy(), other.copy()
        shift = max(mine.shift, others.shift)
        mine.coarsen_to(shift)
        others.coarsen_to(shift)
        mine, others = mine.copy(), others.copy()
        same_place = mine.base == others.base or not mine.total
        return same_place and np.array_equal(mine.counts, others.counts)

    def copy(self) -> "ChunkCounts":
        used = np.flatnonzero(self.counts)
        if not used.size:
            return ChunkCounts(self.shift)
        first, last = int(used[0]), int(used[-1])
        return ChunkCounts(self.shift, self.base + first, self.counts[first : last + 1].copy())

    def _fit(self, lowest: int, highest: int) -> None:
        if self.total <= 0 and self.counts.size:
            self.shift, self.counts = FIRST_SHIFT, np.zeros(0, np.int64)
        first, last = lowest >> self.shift, highest >> self.shift
        if self.counts.size and self.base <= first and last < self.base + self.counts.size:
            return
        if self.counts.size:
            kept = self.copy()
            first, last = min(first, kept.base), max(last, kept.base + kept.counts.size - 1)
        else:
            kept = ChunkCounts(self.shift, first)
        if last - first >= MAX_CHUNKS:
            self.coarsen_to(self.shift + 1)
            self._fit(lowest, highest)
            return
        room = min(2 * (last - first) + 64, MAX_CHUNKS + 1)
        counts = np.zeros(room, np.int64)
        counts[kept.base - first : kept.base - first + kept.counts.size] = kept.counts
        self.counts, self.base, self._lowest = counts, first, 0

    def coarsen_to(self, shift: int) -> None:
        while self.shift < shift:
            odd = self.base & 1
            padded = np.zeros((self.counts.size + odd + 1) // 2 * 2, np.int64)
            padded[odd : odd + self.counts.size] = self.counts
            self.counts = padded[0::2] + padded[1::2]
            self.base >>= 1
            self.shift += 1
            self._lowest = 0


class Counts:
    """Counts of pending entries."""

    def __init__(
        self,
        targets: TargetCounter,
        target_bytes: TargetCounter,
        chunks: ChunkCounts | None = None,
    ) -> None:
        self.targets = targets
        self.target_bytes = target_bytes
        """Bytes of bodies by target, including the names that are stored before bodies."""
        self.total_bytes = target_bytes.total()
        self.chunks = ChunkCounts() if chunks is None else chunks

    @property
    def total(self) -> int:
        return self.chunks.total

    def add(self, entries: Sequence[Entry], offsets: Column) -> None:
        counts = Counter(map(_target_of, entries))
        self.chunks.add(offsets)
        self.targets.add(counts)
        sizes = self._bytes_of(entries, counts)
        self.target_bytes.add_known(sizes)
        self.total_bytes += sum(sizes.values())

    def remove(self, entries: Sequence[Entry]) -> None:
        counts = Counter(map(_target_of, entries))
        self.chunks.remove(offsets_of(entries))
        self.targets.remove(counts)
        sizes = self._bytes_of(entries, counts)
        self.target_bytes.remove(sizes)
        self.total_bytes -= sum(sizes.values())

    def subtract(self, offsets: Column, records: TargetCounter, sizes: TargetCounter) -> None:
        self.chunks.remove(offsets)
        self.targets.subtract(records.by_name, records.others)
        self.target_bytes.subtract(sizes.by_name, sizes.others)
        self.total_bytes -= sizes.total()

    def merge(self, other: "Counts") -> None:
        self.chunks.merge(other.chunks)
        self.targets.merge(other.targets)
        self.target_bytes.merge(other.target_bytes)
        self.total_bytes += other.total_bytes

    def take_out(self, other: "Counts") -> None:
        self.chunks.take_out(other.chunks)
        self.targets.subtract(other.targets.by_name, other.targets.others)
        self.target_bytes.subtract(other.target_bytes.by_name, other.target_bytes.others)
        self.total_bytes -= other.total_bytes

    def copy(self, numbers: TargetNumbers | None = None) -> "Counts":
        targets, sizes = self.targets.copy(numbers), self.target_bytes.copy(numbers)
        return Counts(targets, sizes, self.chunks.copy())

    def _bytes_of(self, entries: Sequence[Entry], counts: Mapping[str, int]) -> dict[str, int]:
        sizes = dict.fromkeys(counts, 0)
        if len(sizes) == 1:
            sizes = dict.fromkeys(counts, sum(map(len, map(_body_of, entries))))
        else:
            for _, _, target, body in entries:
                sizes[target] += len(body)
        numbers = self.targets.numbers
        for name in sizes.keys() - numbers.by_name.keys():
            sizes[name] += counts[name] * numbers.prefix_bytes(name)
        return sizes


def no_counts(numbers: TargetNumbers) -> Counts:
    """Return empty counts with these target numbers."""
    return Counts(TargetCounter(numbers), TargetCounter(numbers))
