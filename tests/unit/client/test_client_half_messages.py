"""The records of a half message: prepare, decision, check-back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kafka_delay import (
    ConfigRefused,
    DelayedRecord,
    HalfMessage,
    RequestRefused,
    State,
    TransactionalDelayProducer,
)
from kafka_delay.half_messages import check_back, decision, half_of, prepared
from kafka_delay.request import Request, WireHeaders

RECORD = DelayedRecord("orders", "v", "k", {"a": "1"})


def _half(request: Request) -> HalfMessage:
    return half_of(request.key, request.value, request.headers)


HALF = HalfMessage("tx-1", "orders", b"k", b"v", [("a", b"1")])


def test_a_prepare_names_its_transaction_and_where_to_ask() -> None:
    request = prepared(RECORD, "tx-1", "orders.checks", None)
    headers: WireHeaders = [
        ("timer-transaction", b"prepare"),
        ("timer-check-topic", b"orders.checks"),
        ("timer-topic", b"orders"),
        ("timer-id", b"tx-1"),
        ("timer-key", b"k"),
        ("a", b"1"),
    ]
    assert request == Request(b"tx-1", b"v", headers)


@pytest.mark.parametrize(("immunity", "text"), [("30s", b"30s"), (timedelta(minutes=1), b"60000")])
def test_immunity_is_given_in_any_form_of_a_delay(immunity: timedelta | str, text: bytes) -> None:
    headers = prepared(RECORD, "tx-1", "checks", immunity).headers
    assert ("timer-check-immunity", text) in headers


@pytest.mark.parametrize("immunity", ["a while", 5, "5"])
def test_an_unreadable_immunity_is_refused_by_its_name(immunity: Any) -> None:
    with pytest.raises(RequestRefused, match="immunity"):
        prepared(RECORD, "tx-1", "checks", immunity)


def test_delays_and_transactions_combine() -> None:
    delayed = DelayedRecord("orders", delay="30s", partition=2)
    headers = prepared(delayed, "tx-1", "checks", None).headers
    assert ("timer-delay", b"30s") in headers
    assert ("timer-partition", b"2") in headers


@pytest.mark.parametrize(
    ("state", "word"), [(State.COMMIT, b"commit"), (State.ROLLBACK, b"rollback")]
)
def test_a_decision_is_keyed_like_its_half_message(state: State, word: bytes) -> None:
    headers: WireHeaders = [("timer-transaction", word), ("timer-id", b"tx-1")]
    assert decision("tx-1", state) == Request(b"tx-1", None, headers)
    assert prepared(RECORD, "tx-1", "checks", None).key == b"tx-1"


def test_the_local_transaction_sees_what_was_asked_for() -> None:
    assert _half(prepared(RECORD, "tx-1", "checks", "30s")) == HALF
    assert _half(prepared(DelayedRecord("orders"), "tx-1", "checks", None)).key is None


def test_a_check_back_gives_the_half_message_and_how_often_it_was_asked() -> None:
    headers: WireHeaders = [
        ("a", b"1"),
        ("timer-transaction", b"check"),
        ("timer-id", b"tx-1"),
        ("timer-check", b"3"),
    ]
    assert check_back(b"k", b"v", headers) == HalfMessage(
        "tx-1", None, b"k", b"v", [("a", b"1")], 3
    )


def test_a_check_back_that_still_carries_the_request_is_read_the_same() -> None:
    request = prepared(RECORD, "tx-1", "checks", None)
    headers: WireHeaders = [
        *request.headers,
        ("timer-transaction", b"check"),
        ("timer-check", b"1"),
    ]
    half = check_back(request.key, request.value, headers)
    assert half == HalfMessage("tx-1", "orders", b"k", b"v", [("a", b"1")], 1)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("timer-transaction", b"check")],
        [("timer-transaction", b"check"), ("timer-id", None)],
        [("timer-transaction", b"commit"), ("timer-id", b"x")],
    ],
)
def test_what_is_no_check_back_is_not_taken_for_one(headers: WireHeaders) -> None:
    assert check_back(b"k", b"v", headers) is None


def test_an_odd_check_number_is_nought() -> None:
    headers: WireHeaders = [
        ("timer-transaction", b"check"),
        ("timer-id", b"x"),
        ("timer-check", b"many"),
    ]
    half = check_back(None, None, headers)
    assert half is not None
    assert half.check == 0
    assert half.header("a") is None


@pytest.mark.parametrize(
    ("config", "listener", "said"),
    [
        (None, object(), "the settings are a NoneType"),
        ({"bootstrap.servers": "localhost:9"}, None, "the listener None has no method check"),
    ],
)
def test_a_producer_that_nobody_could_ask_back_is_refused(
    config: Any, listener: Any, said: str
) -> None:
    with pytest.raises(ConfigRefused, match=said):
        TransactionalDelayProducer(config, listener, "checks")
