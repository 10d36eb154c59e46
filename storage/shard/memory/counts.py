"""How much pends: entries by chunk of ingress offsets (for the floor) and by target, and bytes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter

import numpy as np

from storage.shard.memory.target_counter import TargetCounter
from storage.shard.memory.target_numbers import TargetNumbers
from storage.store import Column, Entry

FIRST_SHIFT = 0
MAX_CHUNKS = 8_192

_offset_of = itemgetter(1)
_target_of = itemgetter(2)
_body_of = itemgetter(3)


def offsets_of(entries: Sequence[Entry]) -> Column:
    """The offsets of `entries` as one array."""
    return np.fromiter(map(_offset_of, entries), np.int64, len(entries))


class ChunkCounts:
    """Pending entries per chunk of 2**shift offsets.

    Chunks start at one offset and double whenever more than 8,192 would be needed. So memory is
    small however far apart the pending offsets lie, and the floor is exact where few records come:
    there a chunk too much would be older than the ingress keeps them."""

    def __init__(self, shift: int = FIRST_SHIFT, base: int = 0, counts: Column | None = None):
        self.shift = shift
        self.base = base
        self.counts = np.zeros(0, np.int64) if counts is None else counts
        self.total = int(self.counts.sum())
        self._lowest = 0

    def add(self, offsets: Column) -> None:
        """Count `offsets` as pending."""
        if not offsets.size:
            return
        self._fit(int(offsets.min()), int(offsets.max()))
        np.add.at(self.counts, (offsets >> self.shift) - self.base, 1)
        self._lowest = min(self._lowest, (int(offsets.min()) >> self.shift) - self.base)
        self.total += offsets.size

    def remove(self, offsets: Column) -> None:
        """Count `offsets`, all added before, as ended."""
        if offsets.size:
            np.subtract.at(self.counts, (offsets >> self.shift) - self.base, 1)
            self.total -= offsets.size

    def floor(self) -> int | None:
        """Start of the lowest chunk with a pending entry; None when nothing pends."""
        if self.total <= 0:
            return None
        if not self.counts[self._lowest]:
            self._lowest += int(np.argmax(self.counts[self._lowest :] != 0))
        return (self.base + self._lowest) << self.shift

    def merge(self, other: "ChunkCounts") -> None:
        """Add everything `other` counts."""
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
        """Count as ended everything `other` counts, all of it added before."""
        other = other.copy()
        self.coarsen_to(other.shift)
        other.coarsen_to(self.shift)
        first = other.base - self.base
        self.counts[first : first + other.counts.size] -= other.counts
        self.total -= other.total

    def counts_same(self, other: "ChunkCounts") -> bool:
        """Whether both count the same offsets, as far as their chunks tell."""
        mine, others = self.copy(), other.copy()
        shift = max(mine.shift, others.shift)
        mine.coarsen_to(shift)
        others.coarsen_to(shift)
        mine, others = mine.copy(), others.copy()
        same_place = mine.base == others.base or not mine.total
        return same_place and np.array_equal(mine.counts, others.counts)

    def copy(self) -> "ChunkCounts":
        """An independent copy without the empty chunks at either end."""
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
        """Join chunks until each spans 2**shift offsets."""
        while self.shift < shift:
            odd = self.base & 1
            padded = np.zeros((self.counts.size + odd + 1) // 2 * 2, np.int64)
            padded[odd : odd + self.counts.size] = self.counts
            self.counts = padded[0::2] + padded[1::2]
            self.base >>= 1
            self.shift += 1
            self._lowest = 0


class Counts:
    """Pending entries per chunk of offsets and per target, and the bytes of their bodies per
    target, kept in step.

    A body's bytes are those that it takes on disk, the name of a target without a number included.
    """

    def __init__(
        self,
        targets: TargetCounter,
        target_bytes: TargetCounter,
        chunks: ChunkCounts | None = None,
    ) -> None:
        self.targets = targets
        self.target_bytes = target_bytes
        self.total_bytes = target_bytes.total()
        self.chunks = ChunkCounts() if chunks is None else chunks

    @property
    def total(self) -> int:
        """How many entries pend."""
        return self.chunks.total

    def add(self, entries: Sequence[Entry], offsets: Column) -> None:
        """Count `entries`, at these offsets, as pending."""
        counts = Counter(map(_target_of, entries))
        self.chunks.add(offsets)
        self.targets.add(counts)
        sizes = self._bytes_of(entries, counts)
        self.target_bytes.add_known(sizes)
        self.total_bytes += sum(sizes.values())

    def remove(self, entries: Sequence[Entry]) -> None:
        """Count `entries` as ended."""
        counts = Counter(map(_target_of, entries))
        self.chunks.remove(offsets_of(entries))
        self.targets.remove(counts)
        sizes = self._bytes_of(entries, counts)
        self.target_bytes.remove(sizes)
        self.total_bytes -= sum(sizes.values())

    def subtract(self, offsets: Column, records: TargetCounter, sizes: TargetCounter) -> None:
        """Count as ended what pended at these offsets: so many records, and bytes, by target."""
        self.chunks.remove(offsets)
        self.targets.subtract(records.by_name, records.others)
        self.target_bytes.subtract(sizes.by_name, sizes.others)
        self.total_bytes -= sizes.total()

    def merge(self, other: "Counts") -> None:
        """Add everything `other`, with the same numbers of targets, counts."""
        self.chunks.merge(other.chunks)
        self.targets.merge(other.targets)
        self.target_bytes.merge(other.target_bytes)
        self.total_bytes += other.total_bytes

    def take_out(self, other: "Counts") -> None:
        """Count as ended everything `other`, with the same numbers of targets, counts."""
        self.chunks.take_out(other.chunks)
        self.targets.subtract(other.targets.by_name, other.targets.others)
        self.target_bytes.subtract(other.target_bytes.by_name, other.target_bytes.others)
        self.total_bytes -= other.total_bytes

    def copy(self, numbers: TargetNumbers | None = None) -> "Counts":
        """An independent copy, but for the numbers of targets."""
        targets, sizes = self.targets.copy(numbers), self.target_bytes.copy(numbers)
        return Counts(targets, sizes, self.chunks.copy())

    def _bytes_of(self, entries: Sequence[Entry], counts: Mapping[str, int]) -> dict[str, int]:
        """The bytes of these entries by target; `counts`: how many there are of each."""
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
    """Nothing pends; targets are to have these numbers."""
    return Counts(TargetCounter(numbers), TargetCounter(numbers))
