"""The retry request of a failed record, and the history in its headers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kafka_delay import DeadLetter, Received, RequestRefused, RetryLater
from kafka_delay.kafka import Place
from kafka_delay.request import Delay, WireHeaders
from kafka_delay.retries import LONGEST_EXCEPTION, Failure, FailureRules, RetryPlan

GROUP, RETRY = "billing", "retry.billing"
PLACE = Place("orders", 2, 41)
NO = Failure("ValueError: no")
PLAN = RetryPlan(GROUP, ["orders"], RETRY)


class Message:
    """The used part of confluent_kafka.Message."""

    def __init__(self, place: Place, headers: WireHeaders) -> None:
        self._place, self._headers = place, headers

    def topic(self) -> str:
        return self._place.topic

    def partition(self) -> int:
        return self._place.partition

    def offset(self) -> int:
        return self._place.offset

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> WireHeaders | None:
        return self._headers or None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_800_000_000_000


def record(place: Place = PLACE, headers: WireHeaders | None = None) -> Received:
    return PLAN.received(Message(place, headers or []))[0]  # type: ignore[arg-type]


def request_headers(
    failed: Received, error: Exception | None = None, target: str | None = None
) -> dict[str, bytes | None]:
    failure = FailureRules().failure_of(error or ValueError("no"))
    assert failure is not None
    return dict(replace(PLAN, target=target).request(failed, failure).headers)


def retried(failed: Received, place: Place) -> Received:
    """Return the record as it returns from the proxy, which removes requests and adds stamps."""
    request = PLAN.request(failed, NO)
    own = [header for header in request.headers if not header[0].startswith("timer-")]
    return record(place, [*own, ("timer-origin", b"i/0/1"), ("timer-due", b"1")])


def test_the_first_failure_is_attempt_nought_and_tells_where_it_came_from() -> None:
    assert request_headers(record()) == {
        "timer-retry-group": b"billing",
        "timer-attempt": b"0",
        "retry-original-topic": b"orders",
        "retry-original-partition": b"2",
        "retry-original-offset": b"41",
        "retry-attempt": b"1",
        "retry-exception": b"ValueError: no",
    }


def test_key_value_and_own_headers_travel_unchanged() -> None:
    headers: WireHeaders = [("a", b"1"), ("b", None), ("a", b"\xff"), ("Timer-x", b"y")]
    request = PLAN.request(record(headers=headers), NO)
    assert (request.key, request.value) == (b"k", b"v")
    assert request.headers[2:6] == headers


def test_every_further_failure_counts_on_and_keeps_the_first_place() -> None:
    failed = record()
    for attempt in range(20):
        assert failed.attempt == attempt
        assert failed.original == PLACE
        assert failed.topic == "orders"
        headers = request_headers(failed)
        assert headers["timer-attempt"] == b"%d" % attempt
        assert headers["retry-original-offset"] == b"41"
        failed = retried(failed, Place(RETRY, 0, attempt))


def test_headers_do_not_grow_from_retry_to_retry() -> None:
    failed = retried(record(headers=[("a", b"1")]), Place(RETRY, 0, 0))
    again = retried(failed, Place(RETRY, 0, 1))
    assert [name for name, _ in again.headers] == [name for name, _ in failed.headers]


def test_stamps_of_the_last_delivery_are_not_sent_in_again() -> None:
    failed = retried(record(), Place(RETRY, 0, 0))
    assert request_headers(failed).keys() & {"timer-origin", "timer-due"} == set()


def test_what_another_group_says_of_retries_is_not_believed() -> None:
    story: WireHeaders = [("retry-attempt", b"9"), ("retry-original-topic", b"elsewhere")]
    failed = record(headers=story)
    assert (failed.attempt, failed.original) == (0, PLACE)
    assert request_headers(failed)["retry-original-topic"] == b"orders"


@pytest.mark.parametrize("raw", [b"", b"-1", b"many", None, b"1" * 30, "²".encode()])
def test_an_unreadable_count_in_the_retry_topic_begins_at_nought(raw: bytes | None) -> None:
    failed = record(Place(RETRY, 1, 7), [("retry-attempt", raw), ("retry-original-topic", b"x")])
    assert failed.attempt == 0
    assert failed.original == Place(RETRY, 1, 7)


def test_a_dead_letter_asks_for_the_last_attempt_and_gives_the_reason() -> None:
    headers = request_headers(replace(record(), attempt=3), DeadLetter("no such customer"))
    assert headers["timer-attempt"] == b"16"
    assert headers["retry-attempt"] == b"4"
    assert headers["retry-exception"] == b"no such customer"


@pytest.mark.parametrize(
    ("delay", "asked"),
    [("1500ms", b"1500ms"), ("30s", b"30s"), (timedelta(minutes=2), b"120000"), ("0s", b"0s")],
)
def test_a_handler_may_choose_the_delay_and_it_counts_as_a_failure(
    delay: Delay, asked: bytes
) -> None:
    headers = request_headers(replace(record(), attempt=3), RetryLater(delay))
    assert headers["timer-delay"] == asked
    assert headers["timer-retry-group"] == b"billing"
    assert headers["timer-attempt"] == b"3"
    assert headers["retry-attempt"] == b"4"
    assert headers["retry-exception"] == b"RetryLater: " + asked


def test_a_chosen_delay_keeps_a_retry_topic_of_another_name() -> None:
    assert request_headers(record(), RetryLater("5ms"), target="again")["timer-topic"] == b"again"


def test_the_reason_for_a_chosen_delay_is_told() -> None:
    assert request_headers(record(), RetryLater("5m", "closed"))["retry-exception"] == b"closed"


@pytest.mark.parametrize("delay", ["soon", -1, 30, 1.5, timedelta(seconds=-1), None, True])
def test_a_delay_that_cannot_be_read_is_refused_where_it_is_raised(delay: Any) -> None:
    with pytest.raises(RequestRefused, match="RetryLater's delay"):
        raise RetryLater(delay)


def test_a_retry_topic_of_another_name_is_the_target_until_the_end() -> None:
    assert request_headers(record(), target="again")["timer-topic"] == b"again"
    over = replace(record(), attempt=16)
    assert "timer-topic" not in request_headers(over, target="again")
    assert "timer-topic" not in request_headers(record(), DeadLetter("x"), target="again")


def test_a_long_exception_is_cut_and_odd_text_is_written_somehow() -> None:
    headers = request_headers(record(), ValueError("x" * 5_000))
    assert len(headers["retry-exception"] or b"") == LONGEST_EXCEPTION
    assert request_headers(record(), ValueError("\ud800"))["retry-exception"] is not None


def test_the_last_of_a_repeated_header_counts() -> None:
    assert record(headers=[("a", b"1"), ("a", b"2")]).header("a") == b"2"
    assert record().header("a") is None
