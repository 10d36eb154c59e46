"""Invalid arguments of the retry consumers are refused before anything is opened."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from kafka_delay import AsyncRetryConsumer, ConfigRefused, Received, RequestRefused, RetryConsumer

CONFIG = {"bootstrap.servers": "localhost:9"}


def handle(_record: Received) -> None:
    """Do nothing."""


async def handle_in_loop(_record: Received) -> None:
    """Do nothing."""


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


@pytest.mark.parametrize("value", [0, 30, "30", "0s", "soon", -5, None])
def test_a_time_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises((ConfigRefused, RequestRefused), match="handler_timeout"):
        RetryConsumer(CONFIG, "billing", ["orders"], handle, handler_timeout=value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"orderly": 1}, "orderly is 1: it must be True or False"),
        ({"orderly_delays": "1s"}, "orderly_delays needs orderly=True"),
        ({"orderly": True, "orderly_delays": ""}, "orderly_delays .* is empty"),
        ({"orderly": True, "orderly_delays": "5s 1s"}, "orderly_delays .* '5s 1s' is not in order"),
        ({"orderly": True, "orderly_delays": "soon"}, "is 'soon': write a number with a unit"),
        ({"orderly": True, "orderly_delays": "1 5 10"}, "is '1', a number without a unit"),
        ({"orderly": True, "orderly_delays": 5}, "orderly_delays is 5: put blanks"),
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
    assert signature(AsyncRetryConsumer).parameters == signature(RetryConsumer).parameters


class HandlesInLoop:
    """Callable whose records nobody would await."""

    async def __call__(self, _record: Received) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": "localhost:9"}, "the settings are a str: give a dict"),
        ({"producer_config": "localhost:9"}, "the settings are a str: give a dict"),
        ({"group": ""}, "group is '', which names no topic"),
        ({"group": None}, "group is None, which names no topic"),
        ({"group": "g" * 249}, "group is 'ggg.*', which names no topic"),
        ({"topics": "orders"}, "topics is 'orders': give a list"),
        ({"topics": []}, r"topics is \[\]: give a list"),
        ({"topics": [5]}, "topics is 5, which names no topic"),
        ({"topics": ["dlq.billing"]}, "'dlq.billing', where this consumer's failures go"),
        ({"topics": ["timer.ingress"]}, "'timer.ingress', where this consumer's failures go"),
        ({"retry_topic": ""}, "retry_topic is '', which names no topic"),
        ({"ingress": None}, "ingress is None, which names no topic"),
        ({"handler": None}, "the handler is None"),
        ({"handler": HandlesInLoop()}, "a coroutine function, and this consumer awaits none"),
    ],
)
def test_what_it_cannot_work_with_is_refused(change: dict[str, Any], said: str) -> None:
    given = {"config": CONFIG, "group": "billing", "topics": ["orders"], "handler": handle}
    with pytest.raises(ConfigRefused, match=said):
        RetryConsumer(**{**given, **change})


def test_topics_may_be_named_by_a_pattern() -> None:
    RetryConsumer(CONFIG, "billing", ["^orders[.].*"], handle)


def test_an_async_handler_that_cannot_be_called_is_refused() -> None:
    not_callable: Any = None
    with pytest.raises(ConfigRefused, match="the handler is None"):
        AsyncRetryConsumer(CONFIG, "billing", ["orders"], not_callable)
