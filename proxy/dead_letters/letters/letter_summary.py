"""Summaries of letters, as a list shows them: bounded in size, however large the letters are."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Final, TypeAlias

from proxy.dead_letters.letters.letter import Letter, Place
from proxy.protocol.headers import ORIGIN

TEXT_KEPT: Final = 500
BYTES_KEPT: Final = 200
FIRST_WINDOW: Final = 500
LARGEST_WINDOW: Final = 64_000

Letters: TypeAlias = Callable[[int, range], Iterable[Letter]]
"""The wanted letters of a partition within some offsets, in their order."""


@dataclass(frozen=True, slots=True)
class LetterSummary:
    """What a list shows of a letter; `value_bytes` is None where it has no value."""

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
    """The letter, cut to what a list shows."""
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


def newest(letters: Letters, spans: Mapping[int, range], limit: int) -> list[LetterSummary]:
    """The last `limit` over all partitions, the newest first. Reads backwards, window by window."""
    found = [
        one for partition, span in spans.items() for one in _last(letters, partition, span, limit)
    ]
    return nlargest(limit, found, key=lambda one: one.age)


def oldest(letters: Letters, spans: Mapping[int, range], limit: int) -> list[LetterSummary]:
    """The first `limit` over all partitions, the oldest first."""
    found: list[LetterSummary] = []
    for partition, span in spans.items():
        for count, letter in enumerate(letters(partition, span), 1):
            found.append(summary_of(letter))
            if count == limit:
                break
    return nsmallest(limit, found, key=lambda one: one.age)


def windows(span: range) -> Iterator[range]:
    """Parts of a span from its end to its start, each twice as wide as the one before."""
    end, width = span.stop, FIRST_WINDOW
    while end > span.start:
        start = max(span.start, end - width)
        yield range(start, end)
        end, width = start, min(width * 2, LARGEST_WINDOW)


def _last(letters: Letters, partition: int, span: range, limit: int) -> list[LetterSummary]:
    found: list[LetterSummary] = []
    for window in windows(span):
        kept = deque(map(summary_of, letters(partition, window)), maxlen=limit - len(found))
        found = [*kept, *found]
        if len(found) == limit:
            break
    return found


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= TEXT_KEPT else text[: TEXT_KEPT - 1] + "…"
