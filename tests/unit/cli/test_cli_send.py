"""`send` writes the protocol's headers, and refuses impossible requests at once."""

import pytest
import typer

from proxy.cli.send import (
    cancel_of,
    decision_on,
    expected_end,
    half_headers,
    named,
    request_headers,
    retry_headers,
    user_headers,
)
from proxy.config.settings import Settings
from proxy.kafka.control import Request

NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("delay", "deliver_at", "level", "header"),
    [
        ("10s", None, None, ("timer-delay", b"10s")),
        (None, "2026-01-01T09:00:00Z", None, ("timer-deliver-at", b"2026-01-01T09:00:00Z")),
        (None, None, 3, ("timer-level", b"3")),
        (None, None, 0, ("timer-level", b"0")),
    ],
)
def test_a_time_becomes_its_header(
    delay: str | None, deliver_at: str | None, level: int | None, header: tuple[str, bytes]
) -> None:
    headers = request_headers("orders", delay, deliver_at, level)
    assert headers == [("timer-topic", b"orders"), header]


def test_without_a_time_only_the_target_is_named() -> None:
    assert request_headers("orders", None, None, None) == [("timer-topic", b"orders")]


def test_two_times_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match="give one of"):
        request_headers("orders", "10s", None, 3)


def test_a_bare_number_is_refused_with_both_units() -> None:
    with pytest.raises(typer.BadParameter, match="30 has no unit: write 30s for seconds, or 30ms"):
        request_headers("orders", "30", None, None)
    assert request_headers("orders", "0", None, None)[1] == ("timer-delay", b"0")


@pytest.mark.parametrize(("delay", "deliver_at"), [("soon", None), (None, "tomorrow")])
def test_an_unreadable_time_is_refused_before_anything_is_sent(
    delay: str | None, deliver_at: str | None
) -> None:
    with pytest.raises(typer.BadParameter, match="is not a"):
        request_headers("orders", delay, deliver_at, None)


def test_headers_are_split_at_the_first_equals_sign() -> None:
    assert user_headers(["a=b=c", "empty="]) == [("a", b"b=c"), ("empty", b"")]


@pytest.mark.parametrize("text", ["nothing", "=value"])
def test_a_header_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write name=value"):
        user_headers([text])


@pytest.mark.parametrize("name", ["timer-cancel", "timer-recall", "timer-transaction"])
def test_headers_that_act_on_another_record_have_commands_of_their_own(name: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"{name} is set by"):
        user_headers([f"{name}=x"])


def test_a_record_with_an_id_is_keyed_by_it_and_takes_its_key_along() -> None:
    record = named("o1", [("timer-topic", b"orders")], b"k", b"v")
    assert (record.key, record.value) == (b"o1", b"v")
    assert record.headers == [("timer-topic", b"orders"), ("timer-id", b"o1"), ("timer-key", b"k")]
    assert dict(named("o1", [], None, b"v").headers)["timer-key"] is None


def test_what_decides_about_an_id_is_keyed_by_it_too() -> None:
    assert cancel_of("o1") == Request([("timer-cancel", b"o1")], b"o1")
    assert cancel_of("o1", 0).partition == 0
    commit = decision_on("o1", "commit")
    assert (commit.key, dict(commit.headers)["timer-transaction"]) == (b"o1", b"commit")


def test_a_target_is_needed_unless_a_consumer_group_gives_the_record_back() -> None:
    assert retry_headers("orders", None, None) == []
    assert retry_headers(None, "g", None) == [("timer-retry-group", b"g"), ("timer-attempt", b"0")]
    with pytest.raises(typer.BadParameter, match="say where"):
        retry_headers(None, None, None)
    with pytest.raises(typer.BadParameter, match="--attempt belongs to --retry-group"):
        retry_headers("orders", None, 3)


def test_a_half_message_needs_an_id_and_may_name_where_to_ask() -> None:
    assert half_headers("o1", "checks", is_half=True) == [
        ("timer-transaction", b"prepare"),
        ("timer-check-topic", b"checks"),
    ]
    with pytest.raises(typer.BadParameter, match="needs an --id"):
        half_headers(None, None, is_half=True)
    with pytest.raises(typer.BadParameter, match="belongs to --prepare"):
        half_headers("o1", "checks", is_half=False)


@pytest.mark.parametrize(
    ("headers", "target", "due_ms"),
    [
        ([("timer-topic", b"orders")], "orders", NOW_MS),
        ([("timer-topic", b"orders"), ("timer-delay", b"2s")], "orders", NOW_MS + 2_000),
        ([("timer-topic", b"orders"), ("timer-level", b"2")], "orders", NOW_MS + 5_000),
        ([("timer-retry-group", b"g"), ("timer-attempt", b"0")], "retry.g", NOW_MS + 10_000),
        ([("timer-retry-group", b"g"), ("timer-attempt", b"16")], "dlq.g", NOW_MS),
    ],
)
def test_the_expected_end_of_a_record_is_what_the_proxy_will_do(
    headers: list[tuple[str, bytes | None]], target: str, due_ms: int
) -> None:
    record = Request(headers, b"k", b"v")
    assert expected_end(record, Settings(), NOW_MS) == (target, due_ms, None)
    assert expected_end(named("o1", headers, b"k", b"v"), Settings(), NOW_MS)[:2] == (
        target,
        due_ms,
    )
    half = named("o1", [*headers, ("timer-transaction", b"prepare")], b"k", b"v")
    assert expected_end(half, Settings(), NOW_MS)[:2] == (target, due_ms)


def test_the_due_of_a_record_that_will_be_rewritten_is_its_own() -> None:
    record = Request([("timer-topic", b"orders"), ("timer-delay", b"30d")])
    prospect = expected_end(record, Settings.model_validate({"roll_after": "1d"}), NOW_MS)
    assert prospect.due_ms == NOW_MS + 30 * 86_400_000


def test_a_record_that_will_be_a_dead_letter_is_known_as_one() -> None:
    record = Request([("timer-topic", b"timer.ingress")])
    rejection = expected_end(record, Settings(), NOW_MS).rejection
    assert rejection is not None
    assert rejection.code == "target-refused"
