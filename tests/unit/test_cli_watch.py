"""`watch` shows whatever lies in a topic, records that no client can read whole included."""

from typing import Any, cast

from confluent_kafka import Message

from proxy.cli.watch import describe_arrival

NOW_MS = 5_000


class StandIn:
    """A fetched record, as far as `watch` looks at it."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def headers(self) -> Any:
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers

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
    return describe_arrival(cast("Message", StandIn(headers)), NOW_MS)


def test_lateness_is_arrival_minus_due() -> None:
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
