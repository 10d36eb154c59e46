"""A group's dead letters: their reasons, and their replay to that group only."""

from __future__ import annotations

from proxy.dead_letters.letter import GroupLetter, Place
from proxy.dead_letters.replay_plan import Edits, Selection, read_edits, requests_of
from proxy.protocol.body import Headers

GIVEN_UP: Headers = [
    ("trace", b"7"),
    ("retry-original-topic", b"orders"),
    ("retry-original-partition", b"2"),
    ("retry-original-offset", b"41"),
    ("retry-attempt", b"17"),
    ("retry-exception", b"ValueError: no\nand more of it"),
    ("timer-origin", b"timer.ingress/1/7"),
    ("timer-due", b"1800000000000"),
]


def a_letter(headers: Headers = GIVEN_UP, value: bytes | None = b"v") -> GroupLetter:
    return GroupLetter(Place(0, 3), 1_000, b"key", value, headers)


def test_what_the_consumer_wrote_says_why_how_often_and_with_what_it_failed() -> None:
    letter = a_letter()
    assert letter.is_ours
    assert letter.reason == "ValueError: no"
    assert letter.detail == "ValueError: no\nand more of it"
    assert letter.target == "orders"
    assert "17 failures at orders/2/41" in letter.meaning
    assert str(letter.origin) == "timer.ingress/1/7"


def test_what_another_client_does_not_tell_is_unknown() -> None:
    letter = a_letter([("timer-origin", b"timer.ingress/1/7")])
    assert (letter.is_ours, letter.reason, letter.target) == (True, "unknown", None)
    assert "? failures at an unknown place" in letter.meaning


def test_a_record_that_the_proxy_did_not_bring_is_a_strangers() -> None:
    letter = a_letter([("retry-exception", b"x")])
    assert (letter.is_ours, letter.reason) == (False, None)


def test_a_null_value_is_the_records_own() -> None:
    assert not a_letter(value=None).lacks_value


def test_it_goes_back_to_its_group_at_once_as_if_it_had_never_failed() -> None:
    assert requests_of(a_letter(), Edits(), "billing") == [
        ("timer-retry-group", b"billing"),
        ("timer-attempt", b"0"),
        ("timer-delay", b"0"),
        ("trace", b"7"),
        ("retry-original-topic", b"orders"),
        ("retry-original-partition", b"2"),
        ("retry-original-offset", b"41"),
    ]


def test_edits_say_when_and_where_instead() -> None:
    edits = read_edits(["timer-delay=5m", "timer-topic=again"], ["trace"])
    headers = requests_of(a_letter(), edits, "billing")
    assert dict(headers)["timer-delay"] == b"5m"
    assert headers[-1] == ("timer-topic", b"again")
    assert "trace" not in dict(headers)


def test_they_are_chosen_by_patterns_on_the_exception_and_the_first_topic() -> None:
    assert Selection(reasons=("ValueError*",), targets=("ord*",)).takes(a_letter())
    assert not Selection(reasons=("KeyError*",)).takes(a_letter())
    assert not Selection(targets=("payments",)).takes(a_letter())
