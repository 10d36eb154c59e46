"""Results of a record by the class of its handler's exception."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_delay import ConfigRefused, DeadLetter, RetryLater
from kafka_delay.retries import Failure, FailureRules


class BankError(ConnectionError):
    """Error that is also a ConnectionError."""


class ClosedForGood(BankError, PermissionError):
    """Error derived from BankError first, then from PermissionError."""


class NoText(ValueError):
    def __str__(self) -> str:
        raise LookupError("no translation")


class OfItsOwn(DeadLetter):
    """Error that does not call the inherited `__init__`."""

    def __init__(self, customer: int) -> None:
        Exception.__init__(self, f"no customer {customer}")


class LaterOfItsOwn(RetryLater):
    """Second error that does not call the inherited `__init__`."""

    def __init__(self) -> None:
        Exception.__init__(self, "closed")


class MoreLikeADeadLetter(DeadLetter):
    """Reason with a name."""


def fate(rules: FailureRules, error: Exception) -> str:
    failure = rules.failure_of(error)
    if failure is None:
        return "handled"
    return "dead letter" if failure.is_final else "retried"


def test_without_rules_every_exception_is_retried() -> None:
    assert FailureRules().failure_of(KeyError("k")) == Failure("KeyError: 'k'")


def test_each_rule_does_what_it_says_and_what_it_does_not_name_is_retried() -> None:
    rules = FailureRules(give_up=[ValueError], ignore=(KeyError,))
    assert fate(rules, ValueError("no")) == "dead letter"
    assert fate(rules, UnicodeError("a ValueError")) == "dead letter"
    assert fate(rules, KeyError("k")) == "handled"
    assert fate(rules, OSError("away")) == "retried"


def test_the_reason_of_what_is_given_up_is_the_exception() -> None:
    failure = FailureRules(give_up=[ValueError]).failure_of(ValueError("no"))
    assert failure == Failure("ValueError: no", is_final=True)


def test_the_most_specific_class_wins_whatever_the_order_of_the_rules() -> None:
    rules = FailureRules(retry=[BankError], give_up=[Exception], ignore=[ConnectionResetError])
    assert fate(rules, BankError()) == "retried"
    assert fate(rules, ConnectionResetError()) == "handled"
    assert fate(rules, ConnectionError()) == "dead letter"


def test_of_two_parents_the_one_that_python_looks_at_first_wins() -> None:
    assert fate(FailureRules(ignore=[BankError], give_up=[PermissionError]), ClosedForGood()) == (
        "handled"
    )


def test_what_a_handler_says_by_itself_is_not_subject_to_rules() -> None:
    rules = FailureRules(ignore=[Exception])
    assert fate(rules, DeadLetter("never")) == "dead letter"
    assert fate(rules, MoreLikeADeadLetter("never")) == "dead letter"
    assert rules.failure_of(RetryLater("5m", "closed")) == Failure("closed", delay="5m")


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (DeadLetter(KeyError("k")), Failure("'k'", is_final=True)),
        (DeadLetter(NoText()), Failure("NoText", is_final=True)),
        (RetryLater("5m", ValueError("closed")), Failure("closed", delay="5m")),
        (RetryLater("5m", NoText()), Failure("NoText", delay="5m")),
        (RetryLater("5m"), Failure("RetryLater: 5m", delay="5m")),
        (NoText(), Failure("NoText: NoText")),
        (OfItsOwn(7), Failure("no customer 7", is_final=True)),
        (LaterOfItsOwn(), Failure("closed")),
    ],
    ids=lambda given: type(given).__name__,
)
def test_whatever_a_handler_gives_as_its_reason_becomes_text(
    error: Exception, failure: Failure
) -> None:
    assert FailureRules().failure_of(error) == failure


def test_a_class_may_be_named_twice_in_one_rule_but_not_in_two() -> None:
    FailureRules(retry=[OSError, IOError])
    with pytest.raises(ConfigRefused, match="OSError is in give_up and in ignore"):
        FailureRules(give_up=[OSError], ignore=[IOError])


@pytest.mark.parametrize(
    "named", [ValueError, "ValueError", {ValueError}, [ValueError()], [KeyboardInterrupt], [None]]
)
def test_what_is_no_sequence_of_exception_classes_is_refused(named: Any) -> None:
    with pytest.raises(ConfigRefused, match="give_up"):
        FailureRules(give_up=named)


@pytest.mark.parametrize("named", [DeadLetter, RetryLater, MoreLikeADeadLetter])
def test_what_speaks_for_itself_cannot_be_named(named: type[Exception]) -> None:
    with pytest.raises(ConfigRefused, match="says by itself"):
        FailureRules(retry=[named])
