"""A record whose headers the client library cannot decode is a dead letter, not a crash."""

from multiprocessing import Pipe
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from proxy.kafka.ingress import Fetched
from proxy.protocol.body import Message
from proxy.protocol.outcomes import Rejection
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import RequestReader


class OnceFailing:
    """Message like confluent_kafka's: the first look at the headers fails, a second would crash."""

    def __init__(self) -> None:
        self.looks = 0

    def headers(self) -> None:
        self.looks += 1
        raise SystemError("returned a result with an exception set")

    def __reduce__(self) -> tuple[Any, ...]:
        self.headers()
        return type(self), ()

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 7

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"value"

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, 1_000


@pytest.fixture
def failing() -> OnceFailing:
    return OnceFailing()


def _fetched(failing: OnceFailing) -> Message:
    fetched = Fetched()
    assert fetched.add([cast(Message, failing)]) == []
    (message,) = fetched.records[3]
    return message


def test_headers_that_failed_once_are_never_touched_again(failing: OnceFailing) -> None:
    message = _fetched(failing)
    for _ in range(3):
        message.headers()
    assert failing.looks == 1


def test_an_unreadable_record_can_be_sent_to_another_process(failing: OnceFailing) -> None:
    message = _fetched(failing)
    one_end, other_end = Pipe()
    with one_end, other_end:
        one_end.send(message)
        sent = other_end.recv()
    assert (sent.headers(), sent.value()) == (message.headers(), b"value")
    assert failing.looks == 1


def test_everything_else_of_an_unreadable_record_is_kept(failing: OnceFailing) -> None:
    message = _fetched(failing)
    assert (message.offset(), message.key(), message.value()) == (7, b"key", b"value")
    assert message.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, 1_000)


def test_unreadable_record_is_rejected_for_its_headers(failing: OnceFailing) -> None:
    message = _fetched(failing)
    parsed = RequestReader(Policy()).read(message.headers() or [], None, None, 1_000, 0, 7)
    assert isinstance(parsed, Rejection)
    assert parsed.code == "header-unreadable"
