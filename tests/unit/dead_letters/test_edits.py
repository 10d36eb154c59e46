"""Replayed letters keep their requests, edited. Only the first origin remains of the stamps."""

import re

import pytest

from proxy.dead_letters.replay_plan import Edits, read_edits, requests_of
from tests.support.dead_letters import ORIGIN, a_letter, letter_headers
from tests.support.records import Headers


def requests(headers: Headers, edits: Edits | None = None) -> Headers:
    letter = a_letter(headers=headers)
    return requests_of(letter, edits or Edits())


def test_requests_and_the_users_headers_stay_and_the_origin_becomes_the_first() -> None:
    own: Headers = [("timer-delay", b"5s"), ("trace", b"\xff"), ("trace", None)]
    assert requests(letter_headers(target="orders", more=own)) == [
        ("timer-topic", b"orders"),
        *own,
        ("timer-first-origin", ORIGIN.encode()),
    ]


def test_first_origin_of_a_record_replayed_before_is_kept() -> None:
    headers = letter_headers(target=None, more=[("timer-first-origin", b"timer.ingress/0/1")])
    assert requests(headers) == [("timer-first-origin", b"timer.ingress/0/1")]


def test_all_stamps_and_private_headers_are_dropped() -> None:
    stamps = ["timer-due", "timer-ingress-key", "timer-hop-from", "timer-hop-due", "timer-origin"]
    headers = letter_headers(target=None, more=[(name, b"x") for name in stamps])
    assert requests(headers) == [("timer-first-origin", ORIGIN.encode())]


def test_letter_without_an_origin_gets_no_stamp() -> None:
    assert requests([("timer-error", b"too-large"), ("a", b"1")]) == [("a", b"1")]


def test_header_is_set_where_it_was_and_once() -> None:
    headers: Headers = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    assert Edits({"a": b"9", "new": b"8"}).applied(headers) == [
        ("a", b"9"),
        ("b", b"2"),
        ("new", b"8"),
    ]


def test_header_is_taken_out_wherever_it_stands() -> None:
    headers: Headers = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    assert Edits(taken_out=frozenset({"a", "c"})).applied(headers) == [("b", b"2")]


def test_edits_are_read_as_they_are_written_on_the_command_line() -> None:
    edits = read_edits(["timer-topic=orders", "note=a=b", "empty="], ["timer-delay"])
    assert edits.values == {"timer-topic": b"orders", "note": b"a=b", "empty": b""}
    assert edits.taken_out == {"timer-delay"}


@pytest.mark.parametrize(
    ("to_set", "to_unset", "sentence"),
    [
        (["timer-topic"], [], "write name=value"),
        (["=x"], [], "write name=value"),
        (["a=1", "a=2"], [], "the header a is set twice"),
        (["a=1"], ["a"], "both set and unset"),
        ([], ["a=1"], "takes only the name"),
        (["timer-origin=x/0/1"], [], "is written by the proxy and cannot be changed"),
        ([], ["timer-error"], "is written by the proxy and cannot be changed"),
        (["timer-hop-from=1"], [], "is written by the proxy and cannot be changed"),
    ],
)
def test_edit_that_makes_no_sense_is_refused(
    to_set: list[str], to_unset: list[str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_edits(to_set, to_unset)
