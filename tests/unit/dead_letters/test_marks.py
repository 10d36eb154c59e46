"""Marks identify the replayed letters exactly, in any number."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.dead_letters import replay_plan as marks
from proxy.dead_letters.letter import Place
from proxy.dead_letters.replay_plan import Mark, Replayed, mark_key, read_mark, read_mark_key
from tests.support.dead_letters import ORIGIN, a_letter
from tests.support.hostile_json import HOSTILE

PLACES = st.builds(Place, st.integers(0, 2), st.integers(0, 60))
SPANS = {0: range(10, 50), 1: range(60)}


def test_mark_is_read_as_it_was_written() -> None:
    mark = Mark(1_000, "timer.ingress/0/9")
    letter = a_letter(offset=17)
    assert read_mark(mark.value(letter), 5) == mark
    assert ORIGIN.encode() in mark.value(letter)
    assert read_mark_key(mark_key("id+/x", letter.place)) == ("id+/x", letter.place)


def test_record_that_is_no_mark_marks_nothing() -> None:
    keys = (None, b"", b"0/1", b"id 0", b"id 0/x", b"\xff 0/1x", b"id 0/" + b"9" * 5_000)
    assert [read_mark_key(raw) for raw in (*keys, "id ²/0".encode())] == [None] * 8


def test_mark_that_cannot_be_read_marks_all_the_same_and_one_taken_back_does_not() -> None:
    assert read_mark(None, 5) is None
    for raw in (b"", b"{}", b"[]", b'{"at": "x"}', *HOSTILE.values()):
        assert read_mark(raw, 5) == Mark(5, "unreadable")


@given(st.sets(PLACES))
def test_exactly_the_marked_letters_count_as_replayed(marked: set[Place]) -> None:
    """Invariant: a place counts as replayed if and only if it still exists and has a mark."""
    replayed = Replayed("id", SPANS)
    for place in marked:
        replayed.note(mark_key("id", place), b"{}")
    everywhere = {Place(p, offset) for p in range(4) for offset in range(70)}
    there = {p for p in marked if p.offset in SPANS.get(p.partition, range(0))}
    assert {place for place in everywhere if place in replayed} == there


def test_mark_of_a_topic_of_the_same_name_made_before_does_not_count() -> None:
    replayed = Replayed("new", SPANS)
    replayed.note(mark_key("old", Place(1, 7)), b"{}")
    assert Place(1, 7) not in replayed
    assert replayed.outdated == {mark_key("old", Place(1, 7))}


def test_marks_of_letters_that_are_gone_are_outdated_until_taken_back() -> None:
    replayed = Replayed("id", SPANS)
    for offset in (3, 4, 10, 70):
        replayed.note(mark_key("id", Place(0, offset)), b"{}")
    replayed.note(mark_key("id", Place(0, 3)), None)
    assert replayed.outdated == {mark_key("id", Place(0, 4))}


def test_so_many_outdated_marks_are_remembered_and_no_more() -> None:
    replayed = Replayed("id", {0: range(10**6, 10**6)})
    for offset in range(marks.FORGOTTEN_AT_ONCE + 5):
        replayed.note(mark_key("id", Place(0, offset)), b"{}")
    assert len(replayed.outdated) == marks.FORGOTTEN_AT_ONCE
