"""Which records of a partition are done, in whatever order they end and whoever ended them."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from proxy.client.retries.committing.progress import Progress, Range


def read_to(progress: Progress, *offsets: int) -> Progress:
    for offset in offsets:
        assert progress.take(offset)
    return progress


def behind(progress: Progress) -> list[Range]:
    return list(progress.done_behind(progress.end()))


def test_what_is_done_behind_a_record_in_hand_is_told_in_ranges() -> None:
    progress = read_to(Progress(4), *range(4, 12))
    for offset in (7, 6, 9, 11):
        progress.done(offset)
    assert (progress.end(), behind(progress)) == (4, [(6, 8), (9, 10), (11, 12)])
    progress.done(4)
    progress.done(5)
    assert (progress.end(), behind(progress)) == (8, [(9, 10), (11, 12)])


def test_offsets_without_a_record_make_no_range_of_their_own() -> None:
    """Transactions leave one behind each of theirs."""
    progress = read_to(Progress(0), 0, 2, 4, 6, 8)
    progress.done(4)
    assert behind(progress) == [(3, 6)]


def test_what_a_commit_says_is_done_is_left_out_and_told_again() -> None:
    progress = Progress(4, [(5, 8), (9, 12)])
    assert progress.take(4)
    assert [progress.take(offset) for offset in (5, 7)] == [False, False]
    assert (progress.position, behind(progress)) == (8, [(5, 8), (9, 12)])
    progress.done(4)
    assert (progress.end(), behind(progress)) == (8, [(9, 12)])
    assert progress.take(8)
    assert not progress.take(9)
    progress.done(8)
    assert (progress.end(), progress.is_over) == (12, True)


def test_what_retention_has_deleted_holds_nothing_up() -> None:
    progress = Progress(10, [(5, 8), (9, 12), (14, 20)])
    assert not progress.take(10)
    assert progress.take(13)
    progress.done(13)
    assert (progress.end(), progress.is_over) == (20, True)


@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 4))
def test_each_record_is_taken_until_it_is_done_and_never_again_over_any_restarts(
    chance: Random, records: int, lives: int
) -> None:
    """After each restart exactly those records are taken again that were not done at the commit,
    whichever offsets are missing.
    """
    offsets = sorted(chance.sample(range(100), records))
    done: set[int] = set()
    committed: tuple[int, list[Range]] = (0, [])
    for _ in range(lives):
        progress = Progress(*committed)
        reach = chance.randrange(101)
        for offset in offsets:
            if committed[0] <= offset < reach:
                assert progress.take(offset) == (offset not in done)
        open_now = [one for one in offsets if committed[0] <= one < reach and one not in done]
        for offset in chance.sample(open_now, chance.randrange(len(open_now) + 1)):
            progress.done(offset)
            done.add(offset)
        committed = progress.end(), behind(progress)
    progress = Progress(*committed)
    taken = {one for one in offsets if one >= committed[0] and progress.take(one)}
    assert taken == set(offsets) - done
