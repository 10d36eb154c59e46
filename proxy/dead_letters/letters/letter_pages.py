"""Letters page by page, the newest first: bounded in memory and in time however many there are."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from proxy.dead_letters.letters.letter_summary import Letters, LetterSummary, summary_of

FIRST_WIDTH: Final = 200
LARGEST_WIDTH: Final = 64_000
SMALLEST_WIDTH: Final = 10
QUICK_S: Final = 0.5
"""A part of a partition that was read in less time is followed by one twice as wide."""
MOST_FOUND: Final = 16_000
"""Summaries in memory, over all partitions."""


class LetterPage(NamedTuple):
    """`ends`: by partition, the offset below which the next page goes on; None: there is none."""

    letters: list[LetterSummary]
    ends: dict[int, int] | None


class LetterPages:
    """One page of the wanted `letters` within `spans`.

    Each partition is read backwards, so that pages hold every letter once, however the clocks
    that have stamped them differ; partitions are merged by time, as far as there is time to read
    all of them.
    """

    def __init__(
        self, letters: Letters, spans: Mapping[int, range], now_s: Callable[[], float]
    ) -> None:
        self._letters, self._spans, self._now_s = letters, spans, now_s
        self._known = {partition: span.stop for partition, span in spans.items()}
        self._found: dict[int, deque[LetterSummary]] = {p: deque() for p in spans}
        self._most_of_one = max(1, MOST_FOUND // max(1, len(spans)))
        self._width = FIRST_WIDTH

    def read(self, limit: int, within_s: float) -> LetterPage:
        """The next `limit` letters; fewer if there are no more, or the time is up after some
        reading."""
        until_s, has_read = self._now_s() + within_s, False
        shown: list[LetterSummary] = []
        while len(shown) < limit:
            lacking = [p for p, found in self._found.items() if not found and self._left(p)]
            if lacking and (not has_read or self._now_s() < until_s):
                self._read_back(max(lacking, key=self._left), limit)
                has_read = True
                continue
            newest = max((f[0] for f in self._found.values() if f), key=_age, default=None)
            if newest is None:
                break
            shown.append(self._found[newest.place.partition].popleft())
        return LetterPage(shown, self._ends())

    def _left(self, partition: int) -> int:
        """How many offsets are not read yet."""
        return self._known[partition] - self._spans[partition].start

    def _read_back(self, partition: int, limit: int) -> None:
        """The next part of a partition, read in its order and kept from its end."""
        stop, began_s = self._known[partition], self._now_s()
        start = max(self._spans[partition].start, stop - self._width)
        kept = deque[LetterSummary](maxlen=min(limit, self._most_of_one))
        is_cut = False
        for letter in self._letters(partition, range(start, stop)):
            is_cut = is_cut or len(kept) == kept.maxlen
            kept.append(summary_of(letter))
        self._known[partition] = kept[0].place.offset if is_cut else start
        self._found[partition].extend(reversed(kept))
        is_quick = self._now_s() - began_s < QUICK_S
        width = self._width * 2 if is_quick else self._width // 2
        self._width = min(max(width, SMALLEST_WIDTH), LARGEST_WIDTH)

    def _ends(self) -> dict[int, int] | None:
        ends = {
            partition: found[0].place.offset + 1 if found else self._known[partition]
            for partition, found in self._found.items()
        }
        return ends if any(end > self._spans[p].start for p, end in ends.items()) else None


def _age(one: LetterSummary) -> tuple[int, object]:
    return one.age
