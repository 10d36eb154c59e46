"""How often records have failed, kept beside the committed offset and read from there again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.client.place import Place
from proxy.client.retries.attempts import MOST_CHARACTERS, Attempt, Attempts

ORDERS = ("orders", 0)
NOW_MS = 1_800_000_000_000


def at(offset: int) -> Place:
    return Place("orders", 0, offset)


def attempts_of(failures: dict[int, int]) -> Attempts:
    made = Attempts()
    for offset, count in failures.items():
        made.note(at(offset), Attempt(count, NOW_MS + offset * 1_000))
    return made


def read_again(attempts: Attempts, offset: int) -> Attempts:
    """As the partition's next consumer gets them."""
    made = Attempts()
    made.restore(ORDERS, offset, attempts.metadata(ORDERS, offset))
    return made


def test_what_waits_at_and_behind_the_offset_is_known_to_the_next_consumer() -> None:
    again = read_again(attempts_of({4: 1, 7: 3}), 5)
    assert again.of(at(4)) is None
    assert again.of(at(7)) == Attempt(3, NOW_MS + 7_000)
    assert again.metadata(ORDERS, 7) is not None
    assert not again.unsaved


def test_a_due_time_is_never_read_as_an_earlier_one() -> None:
    attempts = Attempts()
    attempts.note(at(4), Attempt(1, NOW_MS + 1))
    assert read_again(attempts, 4).of(at(4)) == Attempt(1, NOW_MS + 1_000)


def test_without_a_record_that_waits_there_is_no_metadata() -> None:
    attempts = attempts_of({4: 1})
    attempts.done(at(4))
    assert attempts.metadata(ORDERS, 4) is None
    assert attempts.metadata(("orders", 1), 4) is None


def test_a_failure_is_to_be_committed_and_one_commit_is_enough() -> None:
    attempts = attempts_of({4: 1})
    assert attempts.unsaved == {ORDERS}
    attempts.saved({ORDERS: 4})
    assert not attempts.unsaved
    assert attempts.of(at(4)) is not None


def test_what_lies_before_the_committed_offset_is_forgotten() -> None:
    """Also a record that is never read again, because retention has deleted it."""
    attempts = attempts_of({4: 1, 5: 1})
    attempts.saved({ORDERS: 5})
    assert attempts.of(at(4)) is None
    assert attempts.of(at(5)) is not None


def test_partitions_that_are_gone_are_forgotten() -> None:
    attempts = attempts_of({4: 1})
    attempts.drop([ORDERS])
    assert attempts.of(at(4)) is None
    assert not attempts.unsaved


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        None,
        "by another program",
        "orderly-2 1 1:2:3",
        "orderly-1",
        "orderly-1 1 1:2",
        "orderly-1 x 1:2:3",
        "orderly-1 1 1:-2:3",
        "orderly-1 1 1:2:3\n",
    ],
)
def test_what_somebody_else_has_put_there_counts_as_no_failures(metadata: str | None) -> None:
    attempts = Attempts()
    attempts.restore(ORDERS, 4, metadata)
    assert all(attempts.of(at(offset)) is None for offset in range(10))


@given(st.dictionaries(st.integers(0, 5_000), st.integers(1, 1_000), max_size=1_500))
def test_metadata_is_never_longer_than_a_broker_takes(failures: dict[int, int]) -> None:
    """Whatever has failed; what does not fit has failed least, and none is read with another
    count than its own.
    """
    attempts = attempts_of(failures)
    metadata = attempts.metadata(ORDERS, 0)
    assert len(metadata or "") <= MOST_CHARACTERS
    again = read_again(attempts, 0)
    kept = {offset: found.failures for offset in failures if (found := again.of(at(offset)))}
    assert kept.items() <= failures.items()
    left_out = [count for offset, count in failures.items() if offset not in kept]
    assert not left_out or max(left_out) <= min(kept.values())
    assert len(kept) >= min(len(failures), 200)
