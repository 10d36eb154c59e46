"""What is written beside a committed offset, and read there by the partition's next consumer."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.client.retries.committing.offset_metadata import (
    MOST_CHARACTERS,
    Attempt,
    Remembered,
    Written,
    read,
    written,
)
from proxy.client.retries.committing.progress import Range

NOW_MS = 1_800_000_000_000
CLUSTER = "5L6g3nShT-eMCtK--X86sw"
NOTHING = Remembered({}, [])


def text_of(waiting: dict[int, Attempt], done: list[Range], offset: int = 0) -> str:
    return written(CLUSTER, offset, Remembered(waiting, done)).text or ""


def test_what_waits_and_what_is_done_is_known_to_the_next_consumer() -> None:
    remembered = Remembered(
        {7: Attempt(3, NOW_MS), 5: Attempt(1, NOW_MS + 9_000)}, [(6, 7), (8, 90)]
    )
    text = text_of(*remembered, offset=5)
    assert text == f"retry-1 {CLUSTER} 5;failed 1800000000 2:3:0 0:1:9;done 1 1 1 82"
    assert read(CLUSTER, 5, text) == remembered


def test_each_part_may_be_missing() -> None:
    for remembered in (Remembered({4: Attempt(1, NOW_MS)}, []), Remembered({}, [(5, 8)])):
        assert read(CLUSTER, 4, text_of(*remembered, offset=4)) == remembered


def test_with_nothing_to_say_there_is_no_metadata() -> None:
    assert written(CLUSTER, 4, NOTHING) == Written(None, has_all_done=True)


def test_a_due_time_is_never_read_as_an_earlier_one() -> None:
    text = text_of({4: Attempt(1, NOW_MS + 1)}, [])
    assert read(CLUSTER, 0, text) == Remembered({4: Attempt(1, NOW_MS + 1_000)}, [])


def test_it_holds_in_its_own_cluster_and_at_its_own_offset_alone() -> None:
    """MirrorMaker copies it to other clusters, beside an offset that is another record's there."""
    text = text_of({}, [(5, 8)], offset=4)
    assert read("another-cluster", 4, text) is None
    assert read(CLUSTER, 3, text) is None


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        None,
        "by another program",
        "retry-2 c 4;done 1 1",
        "retry-1 c 4;done 1",
        "retry-1 c 4;done 0 1",
        "retry-1 c 4;done 1 0",
        "retry-1 c 4;done 1 -1",
        "retry-1 c 4;done 1 1;failed 1 1:2:3",
        "retry-1 c 4;failed 1",
        "retry-1 c 4;failed x 1:2:3",
        "retry-1 c 4;failed 1 1:-2:3",
        "retry-1 c 4;failed 1 1:2:3\n",
        "retry-1 c 4;done 1 " + "9" * 19,
        "retry-1 c 4;done 1 \u0661",
    ],
)
def test_what_somebody_else_has_put_there_says_nothing(metadata: str | None) -> None:
    assert read("c", 4, metadata) is None


def ranges_of(bounds: list[int]) -> list[Range]:
    """Every other stretch between them."""
    return list(pairwise(bounds))[::2]


limits = st.sampled_from([0, 40, 300, MOST_CHARACTERS])


@given(
    st.dictionaries(st.integers(0, 5_000), st.integers(1, 1_000), max_size=800),
    st.lists(st.integers(1, 10**12), unique=True, max_size=1_500).map(sorted),
    limits,
)
def test_metadata_is_never_longer_than_a_broker_takes_and_never_says_more_than_is_so(
    failures: dict[int, int], bounds: list[int], most: int
) -> None:
    """What does not fit is left out: of the failures the fewest, of what is done the last; and
    whatever is read is as it was.
    """
    waiting = {at: Attempt(count, NOW_MS + at * 1_000) for at, count in failures.items()}
    done = ranges_of(bounds)
    text, has_all_done = written(CLUSTER, 0, Remembered(waiting, done), most)
    assert len(text or "") <= most
    kept = read(CLUSTER, 0, text) or NOTHING
    assert kept.waiting.items() <= waiting.items()
    left_out = [count for at, count in failures.items() if at not in kept.waiting]
    least_kept = min((one.failures for one in kept.waiting.values()), default=None)
    assert not left_out or least_kept is None or max(left_out) <= least_kept
    assert kept.done == done[: len(kept.done)]
    assert has_all_done == (len(kept.done) == len(done))
    assert most < MOST_CHARACTERS or len(kept.waiting) >= min(len(waiting), 150)
