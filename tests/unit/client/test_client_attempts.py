"""How often records have failed: what is to be committed of it, and what is forgotten."""

from __future__ import annotations

from proxy.client.place import Place
from proxy.client.retries.committing.attempts import Attempts
from proxy.client.retries.committing.offset_metadata import Attempt

ORDERS = ("orders", 0)


def at(offset: int) -> Place:
    return Place("orders", 0, offset)


def attempts_of(*offsets: int) -> Attempts:
    made = Attempts()
    for offset in offsets:
        made.note(at(offset), Attempt(1, 1_000))
    return made


def test_what_waits_from_an_offset_on_is_told() -> None:
    attempts = attempts_of(4, 7)
    attempts.note(at(7), Attempt(2, 5_000))
    assert attempts.behind(ORDERS, 5) == {7: Attempt(2, 5_000)}
    attempts.done(at(7))
    assert attempts.behind(ORDERS, 5) == {}
    assert attempts.behind(("orders", 1), 0) == {}


def test_a_failure_is_to_be_committed_and_one_commit_is_enough() -> None:
    attempts = attempts_of(4)
    assert attempts.unsaved == {ORDERS}
    attempts.saved({ORDERS: 4})
    assert not attempts.unsaved
    assert attempts.of(at(4)) is not None


def test_what_lies_before_the_committed_offset_is_forgotten() -> None:
    """Also a record that is never read again, because retention has deleted it."""
    attempts = attempts_of(4, 5)
    attempts.saved({ORDERS: 5})
    assert attempts.of(at(4)) is None
    assert attempts.of(at(5)) is not None


def test_partitions_that_are_gone_are_forgotten() -> None:
    attempts = attempts_of(4)
    attempts.drop([ORDERS])
    assert attempts.of(at(4)) is None
    assert not attempts.unsaved


def test_what_was_committed_is_gone_on_with() -> None:
    attempts = attempts_of()
    attempts.restore(ORDERS, {4: Attempt(3, 1_000)})
    assert attempts.of(at(4)) == Attempt(3, 1_000)
    assert not attempts.unsaved
