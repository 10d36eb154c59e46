"""`send` asks in the protocol's own headers, and refuses at once what could not work."""

import pytest
import typer

from proxy.cli.send import request_headers, user_headers


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
