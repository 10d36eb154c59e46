"""Lists of letters, bounded in memory however many and however large the letters are. Pure."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, NamedTuple, TypeAlias

from proxy.dead_letters.letter import Letter, Place
from proxy.protocol.headers import ORIGIN

TEXT_KEPT: Final = 500
BYTES_KEPT: Final = 200
FIRST_WINDOW: Final = 500
LARGEST_WINDOW: Final = 64_000
FIRST_WIDTH: Final = 200
LARGEST_WIDTH: Final = 64_000
SMALLEST_WIDTH: Final = 10
QUICK_S: Final = 0.5
"""If a part of a partition was read in less time, the next part is twice as wide."""
MOST_FOUND: Final = 16_000
"""Most summaries in memory, over all partitions."""

Letters: TypeAlias = Callable[[int, range], Iterable[Letter]]
"""The wanted letters of a partition within some offsets, in offset order."""


@dataclass(frozen=True, slots=True)
class LetterSummary:
    """What a list shows of a letter. `value_bytes` is None for a null value."""

    place: Place
    timestamp_ms: int
    reason: str | None
    detail: str | None
    target: str | None
    origin: str | None
    first_origin: str | None
    key: bytes | None
    value_bytes: int | None

    @property
    def age(self) -> tuple[int, Place]:
        """Sorts letters of several partitions by time."""
        return self.timestamp_ms, self.place


def summary_of(letter: Letter) -> LetterSummary:
    """Return the letter, cut to what a list shows."""
    return LetterSummary(
        letter.place,
        letter.timestamp_ms,
        letter.reason,
        _cut(letter.detail),
        _cut(letter.target),
        _cut(letter.text(ORIGIN)),
        _cut(letter.first_origin),
        None if letter.key is None else letter.key[:BYTES_KEPT],
        None if letter.value is None else len(letter.value),
    )


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= TEXT_KEPT else text[: TEXT_KEPT - 1] + "…"


def oldest(letters: Letters, spans: Mapping[int, range], limit: int) -> list[LetterSummary]:
    """Return the first `limit` letters over all partitions, the oldest first."""
    found: list[LetterSummary] = []
    for partition, span in spans.items():
        for count, letter in enumerate(letters(partition, span), 1):
            found.append(summary_of(letter))
            if count == limit:
                break
    return nsmallest(limit, found, key=lambda one: one.age)


def windows(span: range) -> Iterator[range]:
    """Split a span from its end to its start. Each part is twice as wide as the one before."""
    end, width = span.stop, FIRST_WINDOW
    while end > span.start:
        start = max(span.start, end - width)
        yield range(start, end)
        end, width = start, min(width * 2, LARGEST_WINDOW)


class LetterPage(NamedTuple):
    """One page of letters, the newest first."""

    letters: list[LetterSummary]
    ends: dict[int, int] | None
    """By partition: the next page lists offsets below this one. None: there is no next page."""


class LetterPages:
    """The wanted `letters` within `spans`, page by page, the newest first.

    Each partition is read backwards, so pages hold every letter once, even if the clocks that
    stamped them differ. Partitions are merged by time, as long as there is time to read all.
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
        """Return the next `limit` letters. Fewer if there are no more, or the time is up."""
        until_s, has_read = self._now_s() + within_s, False
        shown: list[LetterSummary] = []
        while len(shown) < limit:
            lacking = [p for p, found in self._found.items() if not found and self._left(p)]
            if lacking and (not has_read or self._now_s() < until_s):
                self._read_back(max(lacking, key=self._left), limit)
                has_read = True
                continue
            heads = [found[0] for found in self._found.values() if found]
            if not heads:
                break
            newest = max(heads, key=lambda one: one.age)
            shown.append(self._found[newest.place.partition].popleft())
        return LetterPage(shown, self._ends())

    def _left(self, partition: int) -> int:
        """Return how many offsets are not read yet."""
        return self._known[partition] - self._spans[partition].start

    def _read_back(self, partition: int, limit: int) -> None:
        """Read the part before what is known, and keep its last letters."""
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
