"""Counts by target in a bounded memory: by name for names that have a number."""

from collections import Counter
from collections.abc import Mapping

from storage.shard.memory.target_numbers import TargetNumbers
from storage.store import TargetCounts


class TargetCounter:
    """`by_name`: what counts for targets that have a number, none of it 0. `others`: what counts
    for all others."""

    __slots__ = ("by_name", "numbers", "others")

    def __init__(
        self,
        numbers: TargetNumbers,
        by_name: Mapping[str, int] | None = None,
        others: int = 0,
    ) -> None:
        self.numbers = numbers
        self.by_name: Counter[str] = Counter(by_name or {})
        self.others = others

    def add(self, counts: Mapping[str, int]) -> None:
        """Count so many more for each target, which gets a number if it may have one."""
        has_number = self.numbers.has
        for name, count in counts.items():
            if has_number(name):
                self.by_name[name] += count
            else:
                self.others += count

    def add_known(self, counts: Mapping[str, int]) -> None:
        """Count so many more for each target; none gets a number."""
        by_name, others = self._split(counts)
        self.by_name.update(by_name)
        self.others += others

    def remove(self, counts: Mapping[str, int]) -> None:
        """Count so many less for each target."""
        self.subtract(*self._split(counts))

    def subtract(self, by_name: Mapping[str, int], others: int) -> None:
        """Count so many less for targets that have a number, and for the others."""
        self.others -= others
        for name, ended in by_name.items():
            left = self.by_name[name] - ended
            if left > 0:
                self.by_name[name] = left
            else:
                del self.by_name[name]

    def merge(self, other: "TargetCounter") -> None:
        """Add everything `other`, with the same numbers, counts."""
        self.by_name.update(other.by_name)
        self.others += other.others

    def copy(self, numbers: TargetNumbers | None = None) -> "TargetCounter":
        """An independent copy, but for the numbers."""
        return TargetCounter(numbers or self.numbers, self.by_name, self.others)

    def total(self) -> int:
        """For all targets."""
        return self.by_name.total() + self.others

    def shown(self) -> TargetCounts:
        """As they are now; with names that count 0 as long as others might have any."""
        if not self.others:
            return TargetCounts(dict(self.by_name))
        return TargetCounts(dict.fromkeys(self.numbers.by_name, 0) | self.by_name, self.others)

    def _split(self, counts: Mapping[str, int]) -> tuple[dict[str, int], int]:
        """What is not 0 of targets that have a number, and the sum of the others."""
        numbers = self.numbers.by_name
        by_name = {name: count for name, count in counts.items() if count and name in numbers}
        return by_name, sum(counts.values()) - sum(by_name.values())
