"""`watch` shows every record of a topic, even if no client can read it whole."""

from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from proxy.cli.watch import describe_arrival, watch_line
from proxy.protocol.outcomes import read_outcome
from tests.support.hostile_json import HOSTILE

NOW_MS = 5_000


class StandIn:
    """The part of a fetched record that `watch` uses."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def headers(self) -> Any:
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, NOW_MS

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def key(self) -> bytes | None:
        return b"\xff"

    def value(self) -> bytes | None:
        return None


def arrival(headers: Any) -> dict[str, Any]:
    return describe_arrival(cast("Message", StandIn(headers)))


def test_lateness_is_the_timestamp_minus_due_whenever_it_is_watched() -> None:
    seen = arrival([("timer-due", b"4990"), ("timer-origin", b"timer.ingress/0/1")])
    assert (seen["due_ms"], seen["lateness_ms"]) == (4990, 10)
    assert seen["origin"] == "timer.ingress/0/1"


def test_a_record_without_stamps_or_with_junk_in_them_has_no_lateness() -> None:
    assert arrival(None)["lateness_ms"] is None
    assert arrival([("timer-due", b"soon")])["lateness_ms"] is None
    assert arrival([("timer-due", "²".encode())])["lateness_ms"] is None


def test_bytes_that_are_no_text_are_shown_escaped() -> None:
    seen = arrival([("trace", b"\x00\xfe"), ("empty", None)])
    assert seen["key"] == "\\xff"
    assert seen["headers"] == {"trace": "\x00\\xfe", "empty": None}


def test_headers_that_the_client_library_cannot_read_are_marked() -> None:
    failure = SystemError("returned a result with an exception set")
    assert arrival(failure)["headers"] == {"timer-unreadable": None}


def line(headers: Any, **more: Any) -> str:
    return watch_line({**arrival(headers), **more}, b"k", b"v")


def test_a_delivery_is_shown_with_how_late_it_is() -> None:
    assert "+10 ms  0/7  k  v" in line([("timer-due", b"4990")])
    assert "not delayed  0/7  k  v" in line(None)


def test_a_check_back_names_the_half_message_that_is_undecided() -> None:
    headers = [("timer-transaction", b"check"), ("timer-id", b"o1"), ("timer-check", b"2")]
    assert "check 2  0/7  k  v  commit or roll back: o1" in line(headers)


def test_a_dead_letter_says_why_and_where_it_comes_from() -> None:
    headers = [
        ("timer-error", b"too-large"),
        ("timer-error-detail", b"5 bytes\x1b[2J"),
        ("timer-origin", b"timer.ingress/0/1"),
    ]
    shown = line(headers)
    assert "dead letter  0/7  k  v  too-large: 5 bytes\\x1b[2J  origin timer.ingress/0/1" in shown


def test_an_outcome_is_shown_in_words() -> None:
    value = (
        b'{"origin": "i/0/1", "outcome": "replaced", "due": 7, "id": "o1", "next_origin": "i/0/2"}'
    )
    shown = line(None, ended=read_outcome(value))
    assert "replaced  0/7  i/0/1  id o1  due " in shown
    assert shown.endswith("next i/0/2")
    bare = {"origin": "i/0/1", "outcome": "missed", "due": None, "id": None, "detail": "nothing"}
    assert line(None, ended=bare).endswith("missed  0/7  i/0/1  nothing")


def test_due_that_is_no_time_is_called_unreadable() -> None:
    for due in (b"9" * 5_000, b"soon", None):
        assert "unreadable  0/7  k  v" in line([("timer-due", due)])


@pytest.mark.parametrize("name", HOSTILE)
def test_outcome_that_cannot_be_read_is_called_so(name: str) -> None:
    assert "unreadable  0/7  k  v" in line(None, ended=read_outcome(HOSTILE[name]))
