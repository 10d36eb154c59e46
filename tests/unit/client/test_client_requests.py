"""The ingress record of each request, header by header."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_delay.errors import RequestRefused
from kafka_delay.request import (
    DelayedRecord,
    Receipt,
    Request,
    WireHeaders,
    cancellation,
    delayed,
    recall,
    request_of,
)


def refusal(**asked: Any) -> str:
    with pytest.raises(RequestRefused) as raised:
        request_of(DelayedRecord(**{"topic": "orders", **asked}))
    return str(raised.value)


def test_a_record_without_an_id_keeps_its_own_key() -> None:
    request = request_of(DelayedRecord("orders", "v", "k", {"a": "1"}, delay="30s"))
    headers: WireHeaders = [("timer-topic", b"orders"), ("timer-delay", b"30s"), ("a", b"1")]
    assert request == Request(b"k", b"v", headers)


def test_a_record_with_an_id_is_keyed_by_it_and_carries_its_key_in_a_header() -> None:
    request = request_of(DelayedRecord("orders", b"v", b"k", id="order-7"))
    assert request.key == b"order-7"
    assert request.headers[1:] == [("timer-id", b"order-7"), ("timer-key", b"k")]


def test_a_null_key_beside_an_id_travels_as_a_header_with_a_null_value() -> None:
    assert ("timer-key", None) in request_of(DelayedRecord("orders", id="x")).headers
    assert ("timer-key", b"") in request_of(DelayedRecord("orders", key="", id="x")).headers


@pytest.mark.parametrize("receipt", [Receipt("timer.ingress", 3, 17, 5), "timer.ingress/3/17"])
def test_a_recall_goes_to_the_partition_of_its_record(receipt: Receipt | str) -> None:
    headers: WireHeaders = [("timer-recall", b"timer.ingress/3/17")]
    assert recall(receipt, "timer.ingress") == Request(None, None, headers, 3)


def test_a_recall_has_the_key_of_the_receipt_or_what_is_known_of_the_record() -> None:
    origin: WireHeaders = [("timer-recall", b"timer.ingress/3/17")]
    receipt = Receipt("timer.ingress", 3, 17, 5, b"k")
    assert recall(receipt, "timer.ingress") == Request(b"k", None, origin, 3)
    assert recall(receipt, "timer.ingress", key="other").key == b"other"
    by_id = recall(receipt.origin, "timer.ingress", ident="a")
    assert by_id == Request(None, None, [*origin, ("timer-id", b"a")], 3)
    with pytest.raises(RequestRefused, match="the id is 0 bytes long"):
        recall(receipt, "timer.ingress", ident="")


@pytest.mark.parametrize(
    "receipt",
    [
        *("", "17", "timer.ingress/3", "timer.ingress/x/17", "timer.ingress/3/-1", "orders/3/17"),
        *(Receipt("timer.ingress", 3, -1, 5), Receipt("orders", 3, 17, 5), None, 17),
    ],
)
def test_what_is_no_receipt_cannot_be_recalled(receipt: Any) -> None:
    with pytest.raises(RequestRefused, match="is no receipt of a record in timer"):
        recall(receipt, "timer.ingress")


def test_a_cancel_is_keyed_like_the_record_it_cancels() -> None:
    request = cancellation("ÿ7")
    assert request == Request("ÿ7".encode(), None, [("timer-cancel", "ÿ7".encode())])
    assert request.key == request_of(DelayedRecord("orders", id="ÿ7")).key


def test_a_partition_of_the_target_is_asked_for_in_a_header() -> None:
    assert ("timer-partition", b"3") in request_of(DelayedRecord("orders", partition=3)).headers


def test_headers_may_be_pairs_repeated_null_and_bytes_in_their_order() -> None:
    pairs: Any = [("a", "1"), ["b", None], ("a", b"\xff")]
    headers = request_of(DelayedRecord("orders", headers=pairs)).headers
    assert headers[1:] == [("a", b"1"), ("b", None), ("a", b"\xff")]


def test_null_value_and_empty_value_stay_apart() -> None:
    assert request_of(DelayedRecord("orders")).value is None
    assert request_of(DelayedRecord("orders", "")).value == b""


def test_a_header_of_the_proxy_s_own_is_refused_by_name() -> None:
    told = refusal(headers={"timer-delay": "5s"})
    assert "'timer-delay'" in told
    assert "use the arguments of send" in told


@pytest.mark.parametrize(
    "headers", ["text", [("a",)], [("a", "b", "c")], [1], [(1, "b")], {b"a": "b"}]
)
def test_what_is_no_header_is_refused(headers: Any) -> None:
    assert "is no header" in refusal(headers=headers)


@pytest.mark.parametrize("value", [1, {"a": 1}, object(), bytearray(b"x")])
def test_values_keys_and_headers_are_text_or_bytes(value: Any) -> None:
    assert "must be str, bytes or None" in refusal(value=value)
    assert "must be str, bytes or None" in refusal(key=value)
    assert "must be str, bytes or None" in refusal(headers={"a": value})


def test_text_that_is_not_unicode_is_refused() -> None:
    assert "key cannot be written as UTF-8" in refusal(key="\ud800")
    assert "name cannot be written as UTF-8" in refusal(headers={"\ud800": "x"})


@pytest.mark.parametrize("ident", ["", b"", "x" * 257, "ü" * 129])
def test_an_id_has_between_one_and_256_bytes(ident: Any) -> None:
    assert "1 to 256 bytes" in refusal(id=ident)
    with pytest.raises(RequestRefused, match="1 to 256 bytes"):
        cancellation(ident)


def test_the_longest_id_is_taken_and_bytes_must_be_text() -> None:
    assert request_of(DelayedRecord("orders", id="ü" * 128)).key == ("ü" * 128).encode()
    assert "is not UTF-8" in refusal(id=b"\xff")


@pytest.mark.parametrize("topic", ["", "a b", ".", "..", "x" * 250, None, b"orders", "ü"])
def test_a_topic_that_kafka_would_not_have_is_refused(topic: Any) -> None:
    assert "a Kafka topic name has" in refusal(topic=topic)


@pytest.mark.parametrize("partition", [-1, True, "1", 2**31, 1.0])
def test_a_partition_is_a_number_from_nought(partition: Any) -> None:
    assert "must be a number from 0" in refusal(partition=partition)


names = st.text(min_size=1).filter(lambda name: not name.startswith("timer-"))
data = st.none() | st.binary() | st.text()


@given(data, data, st.lists(st.tuples(names, data)), st.none() | st.text("aü", min_size=1))
def test_what_the_caller_gave_is_in_the_request_byte_for_byte(
    value: Any, key: Any, headers: Any, ident: str | None
) -> None:
    """Invariant: value, key and own headers are unchanged, with or without an id."""
    request = request_of(DelayedRecord("t", value, key, headers, id=ident))
    expected = [_bytes(part) for part in (value, key)]
    target_key = dict(request.headers).get("timer-key", request.key)
    assert [request.value, target_key] == expected
    own = [header for header in request.headers if not header[0].startswith("timer-")]
    assert own == [(name, _bytes(part)) for name, part in headers]


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part


def test_a_producer_of_any_library_gets_key_value_and_headers() -> None:
    key, value, headers = delayed("orders", "v", "k", headers={"a": "1"}, delay="30s", id="x")
    request = request_of(DelayedRecord("orders", "v", "k", {"a": "1"}, delay="30s", id="x"))
    assert (key, value, headers) == (request.key, request.value, request.headers)
    with pytest.raises(RequestRefused, match="delay is 30, a number without a unit"):
        delayed("orders", delay=30)  # type: ignore[arg-type]
