"""Pages have every wanted letter once, the newest first, in bounded time and memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dead_letters import letter as letters
from proxy.dead_letters.letter import FIRST_WIDTH, Letter, LetterPages
from tests.support.dead_letters import a_letter

END = 5_001
LOGS = st.lists(st.lists(st.integers(0, 5_000), unique=True).map(sorted), min_size=1, max_size=3)
Ends = dict[int, int]


class Topic:
    """Wanted letters at some offsets of each partition. `times` is by place, default the offset."""

    def __init__(self, logs: list[list[int]], times: dict[tuple[int, int], int] | None = None):
        self.logs, self.times, self.read = logs, times or {}, 0
        self.steps_s = iter([0.0])

    def letters(self, partition: int, span: range) -> Iterator[Letter]:
        for offset in self.logs[partition]:
            if offset in span:
                self.read += 1
                time_ms = self.times.get((partition, offset), offset)
                yield a_letter(offset, partition=partition, timestamp_ms=time_ms)

    def now_s(self) -> float:
        return next(self.steps_s, 0.0)

    def page(self, ends: Ends, limit: int) -> tuple[list[tuple[int, int]], Ends | None]:
        spans = {p: range(ends.get(p, END)) for p in range(len(self.logs))}
        page = LetterPages(self.letters, spans, self.now_s).read(limit, 4.0)
        return [(one.place.partition, one.place.offset) for one in page.letters], page.ends

    def pages(self, limit: int) -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = []
        ends: Ends | None = {}
        while ends is not None:
            page, ends = self.page(ends, limit)
            assert len(page) <= limit
            found.append(page)
        return found

    @property
    def all(self) -> list[tuple[int, int]]:
        return [(p, offset) for p, offsets in enumerate(self.logs) for offset in offsets]


@given(LOGS, st.integers(1, 50))
def test_pages_together_are_all_wanted_letters_by_time(logs: list[list[int]], limit: int) -> None:
    """Invariant: if times follow offsets, pages are all letters sorted by time."""
    topic = Topic(logs)
    newest_first = sorted(topic.all, key=lambda one: (one[1], one[0]), reverse=True)
    assert [one for page in topic.pages(limit) for one in page] == newest_first


@given(LOGS, st.integers(1, 50), st.randoms(use_true_random=False))
def test_letters_are_listed_once_however_their_clocks_differ(
    logs: list[list[int]], limit: int, random: Random
) -> None:
    """Invariant: unordered times lose no letter and repeat none."""
    topic = Topic(logs)
    topic.times = {place: random.randint(0, 9) for place in topic.all}
    assert sorted(one for page in topic.pages(limit) for one in page) == sorted(topic.all)


@given(LOGS, st.integers(1, 50))
def test_pages_that_run_out_of_time_still_come_to_the_end(
    logs: list[list[int]], limit: int
) -> None:
    """Invariant: slow pages read a part each, and the next page continues there."""
    topic = Topic(logs)
    topic.steps_s = count(0.0, 3.0)
    assert sorted(one for page in topic.pages(limit) for one in page) == sorted(topic.all)


def test_first_page_of_a_long_topic_reads_its_end_alone() -> None:
    topic = Topic([list(range(END))])
    assert topic.page({}, 20)[0][0] == (0, END - 1)
    assert topic.read <= FIRST_WIDTH


def test_no_more_summaries_than_the_bound_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "MOST_FOUND", 10)
    topic = Topic([list(range(END)), list(range(END))])
    page, ends = topic.page({}, 8)
    assert len(page) == 8
    assert ends == {0: END - 4, 1: END - 4}
