"""Which exceptions of a handler bring the record again, and which do not."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from proxy.client.errors import ConfigRefused
from proxy.client.retries.handling.failure import (
    DeadLetter,
    Failure,
    RetryLater,
    described,
    text_of,
)

Exceptions: TypeAlias = Sequence[type[Exception]]

RETRY: Final = "retry"
GIVE_UP: Final = "give_up"
IGNORE: Final = "ignore"


class FailureRules:
    """What an exception comes to, by its class. DeadLetter and RetryLater say it by themselves.

    Of the classes that are named, the first counts in the order in which Python looks up an
    attribute of the exception: its own class, then what that derives from. Without any it is
    retried. Raises ConfigRefused when a class is named twice, or is none that can be named.
    """

    def __init__(
        self, retry: Exceptions = (), give_up: Exceptions = (), ignore: Exceptions = ()
    ) -> None:
        self._rules: dict[type, str] = {}
        for rule, named in {RETRY: retry, GIVE_UP: give_up, IGNORE: ignore}.items():
            for one in _classes(rule, named):
                self._add(one, rule)

    def failure_of(self, error: Exception) -> Failure | None:
        """What an exception of a handler comes to; None: the record counts as handled."""
        if isinstance(error, DeadLetter):
            return Failure(_reason(error), is_final=True)
        if isinstance(error, RetryLater):
            return Failure(_reason(error), delay=getattr(error, "delay", None))
        rule = next((self._rules[one] for one in type(error).__mro__ if one in self._rules), RETRY)
        if rule == IGNORE:
            return None
        return Failure(described(error), is_final=rule == GIVE_UP)

    def _add(self, named: type, rule: str) -> None:
        other = self._rules.setdefault(named, rule)
        if other != rule:
            raise ConfigRefused(
                f"{named.__name__} is in {other} and in {rule}: name it in one of them"
            )


def _reason(error: DeadLetter | RetryLater) -> str:
    """A subclass may not have called their `__init__`, or put something else there."""
    return text_of(getattr(error, "reason", error))


def _classes(rule: str, named: object) -> list[type]:
    if isinstance(named, type) or not isinstance(named, Sequence):
        raise ConfigRefused(
            f"{rule} is {named!r}: give a list or tuple of exception classes, {rule}=[ValueError]"
        )
    for one in named:
        _refuse_unusable(rule, one)
    return list(named)


def _refuse_unusable(rule: str, named: object) -> None:
    if not isinstance(named, type) or not issubclass(named, Exception):
        raise ConfigRefused(
            f"{rule} names {named!r}: name classes that derive from Exception; any other ends `run`"
        )
    if issubclass(named, DeadLetter | RetryLater):
        raise ConfigRefused(
            f"{rule} names {named.__name__}, which says by itself what is to become of the record: "
            "leave it out"
        )
