"""Lists of the newest or oldest letters, in bounded memory."""

from collections.abc import Iterator
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from proxy.dead_letters.letter import (
    LARGEST_WINDOW,
    TEXT_KEPT,
    Letter,
    LetterPages,
    LetterSummary,
    oldest,
    summary_of,
    windows,
)
from tests.support.dead_letters import a_letter, letter_headers

LOGS = st.lists(st.lists(st.integers(0, 5_000), unique=True).map(sorted), min_size=1, max_size=3)


class Topic:
    """Wanted letters at some offsets of each partition. A letter's time is its offset."""

    def __init__(self, logs: list[list[int]]) -> None:
        self.logs = logs
        self.read = 0

    def letters(self, partition: int, span: range) -> Iterator[Letter]:
        for offset in self.logs[partition]:
            if offset in span:
                self.read += 1
                yield a_letter(offset, partition=partition, timestamp_ms=offset)

    @property
    def spans(self) -> dict[int, range]:
        return {partition: range(5_001) for partition in range(len(self.logs))}

    @property
    def all(self) -> list[tuple[int, int]]:
        return sorted((o, p) for p, offsets in enumerate(self.logs) for o in offsets)


def newest(topic: Topic, spans: dict[int, range], limit: int) -> list[LetterSummary]:
    return LetterPages(topic.letters, spans, lambda: 0.0).read(limit, inf).letters


@given(LOGS, st.integers(1, 50))
def test_newest_are_the_last_over_all_partitions(logs: list[list[int]], limit: int) -> None:
    """Invariant: the list is the end of all wanted letters sorted by time, the newest first."""
    topic = Topic(logs)
    found = [(one.timestamp_ms, one.place.partition) for one in newest(topic, topic.spans, limit)]
    assert found == topic.all[::-1][:limit]


@given(LOGS, st.integers(1, 50))
def test_oldest_are_the_first_over_all_partitions(logs: list[list[int]], limit: int) -> None:
    """Invariant: the list is the start of all wanted letters sorted by time."""
    topic = Topic(logs)
    found = [
        (one.timestamp_ms, one.place.partition) for one in oldest(topic.letters, topic.spans, limit)
    ]
    assert found == topic.all[:limit]


def test_newest_of_a_long_topic_are_found_without_reading_it_all() -> None:
    topic = Topic([list(range(5_000))])
    newest(topic, {0: range(5_000)}, 20)
    assert topic.read <= 500
    oldest(topic.letters, {0: range(5_000)}, 20)
    assert topic.read <= 520


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_windows_cover_a_span_from_its_end_without_gap_or_overlap(start: int, length: int) -> None:
    """Invariant: adjacent windows form the span, and none exceeds the largest size."""
    parts = list(windows(range(start, start + length)))
    assert all(0 < len(part) <= LARGEST_WINDOW for part in parts)
    assert [part.stop for part in parts] == [start + length, *(p.start for p in parts)][:-1][
        : len(parts)
    ]
    assert sum(map(len, parts)) == length


def test_summary_of_a_huge_letter_is_small() -> None:
    huge = "x" * 10**6
    headers = letter_headers(target=huge, more=[("timer-first-origin", huge.encode())])
    one = summary_of(a_letter(headers=headers, key=huge.encode(), value=huge.encode()))
    assert len(one.target or "") == len(one.first_origin or "") == TEXT_KEPT
    assert len(one.key or b"") < 1_000
    assert one.value_bytes == 10**6


def test_null_value_is_told_from_an_empty_one() -> None:
    assert summary_of(a_letter(value=None)).value_bytes is None
    assert summary_of(a_letter(value=b"")).value_bytes == 0
