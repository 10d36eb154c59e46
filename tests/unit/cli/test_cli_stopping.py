"""Ctrl-C ends a command once, and does not interrupt its cleanup."""

import signal
from collections.abc import Iterator

import pytest

from proxy.cli.terminal import StopAsked, stop_raises

BOTH = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def _handlers_afterwards() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_raises_and_later_ones_do_nothing(number: signal.Signals) -> None:
    with pytest.raises(StopAsked), stop_raises():
        signal.raise_signal(number)
    for later in BOTH:
        signal.raise_signal(later)


def test_without_a_signal_all_is_as_before_even_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), stop_raises():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before
