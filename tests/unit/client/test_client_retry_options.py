"""Arguments of the retry consumers that cannot be meant are refused before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.client import AsyncRetryConsumer, ConfigRefused, Received, RequestRefused, RetryConsumer

CONFIG = {"bootstrap.servers": "localhost:9"}


def handle(_record: Received) -> None:
    """Does nothing."""


async def handle_in_loop(_record: Received) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("parallel", 0),
        ("parallel", True),
        ("parallel", 1.5),
        ("max_hanging", -1),
        ("max_attempts", 0),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(option: str, value: Any) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigRefused, match=option):
        RetryConsumer(CONFIG, "billing", ["orders"], handle, **given)


@pytest.mark.parametrize("value", [0, "0s", "soon", -5, None])
def test_a_time_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises((ConfigRefused, RequestRefused), match="handler_timeout"):
        RetryConsumer(CONFIG, "billing", ["orders"], handle, handler_timeout=value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"orderly": 1}, "orderly is 1: it must be True or False"),
        ({"orderly_delays": "1s"}, "orderly_delays is for orderly=True alone"),
        ({"orderly": True, "orderly_delays": ""}, "orderly_delays .* is empty"),
        ({"orderly": True, "orderly_delays": "5s 1s"}, "orderly_delays .* '5s 1s' must not fall"),
        ({"orderly": True, "orderly_delays": "soon"}, "'soon' is not a delay"),
        ({"orderly": True, "orderly_delays": 5}, "orderly_delays is 5: write delays"),
    ],
)
def test_what_makes_no_sense_of_the_orderly_mode_is_refused(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigRefused, match=said):
        RetryConsumer(CONFIG, "billing", ["orders"], handle, **options)


def test_the_orderly_mode_is_taken_with_the_usual_delays_and_with_others() -> None:
    RetryConsumer(CONFIG, "billing", ["orders"], handle, orderly=True)
    RetryConsumer(CONFIG, "billing", ["orders"], handle, orderly=True, orderly_delays="1s 1m")


def test_a_handler_of_the_other_kind_is_refused_and_told_where_it_belongs() -> None:
    with pytest.raises(ConfigRefused, match="use AsyncRetryConsumer"):
        RetryConsumer(CONFIG, "billing", ["orders"], handle_in_loop)
    not_async: Any = handle
    with pytest.raises(ConfigRefused, match="use RetryConsumer"):
        AsyncRetryConsumer(CONFIG, "billing", ["orders"], not_async)
    AsyncRetryConsumer(CONFIG, "billing", ["orders"], handle_in_loop, parallel=2)


def test_an_asynchronous_consumer_takes_every_option_of_the_other() -> None:
    taken = set(RetryConsumer.__init__.__kwdefaults__ or {})
    (options,) = AsyncRetryConsumer.__init__.__annotations__["options"].__args__
    assert set(options.__annotations__) == taken
