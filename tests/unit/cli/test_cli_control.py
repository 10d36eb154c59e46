"""`cancel`, `commit` and `rollback` report their effect from the outcomes."""

import json
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from proxy.kafka.control import ControlResult, await_results, find_results
from proxy.protocol.outcomes import read_outcome

ORIGIN = "timer.ingress/2/17"
CANCELLED = {"origin": "timer.ingress/2/5", "outcome": "cancelled", "due": 7, "id": "o1"}
APPLIED = {"origin": ORIGIN, "outcome": "applied", "due": None, "id": "o1", "detail": ""}


def answer(*said: dict[str, Any]) -> ControlResult:
    return find_results(iter(said), [ORIGIN], "o1")[0]


def test_the_answer_is_the_outcome_of_the_control_record_itself() -> None:
    others = {**APPLIED, "origin": "timer.ingress/2/16", "outcome": "missed"}
    assert answer(others, APPLIED).outcome == "applied"
    assert answer(APPLIED).exit_code == 0


def test_what_was_cancelled_is_told_with_the_answer() -> None:
    assert answer(CANCELLED, APPLIED).ended == CANCELLED


def test_what_was_recalled_is_told_by_its_origin() -> None:
    (found,) = find_results([CANCELLED, APPLIED], [ORIGIN], "timer.ingress/2/5")
    assert found.ended == CANCELLED


def test_the_same_id_in_another_partition_is_another_record() -> None:
    elsewhere = {**CANCELLED, "origin": "timer.ingress/1/5"}
    assert answer(elsewhere, APPLIED).ended is None


@pytest.mark.parametrize("outcome", ["missed", "dead-lettered"])
def test_only_an_applied_request_is_a_success(outcome: str) -> None:
    found = answer({**APPLIED, "outcome": outcome, "detail": "why"})
    assert (found.outcome, found.detail, found.exit_code) == (outcome, "why", 1)


def test_no_answer_is_no_success() -> None:
    assert answer(CANCELLED) == ControlResult(ORIGIN)
    assert answer().exit_code == 1


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"7", b"[]", b'{"origin": "x"}'])
def test_what_is_no_outcome_is_passed_over(value: bytes | None) -> None:
    assert read_outcome(value) is None


def polled(error: int | None) -> Mock:
    """Return an error of the client, or the outcome."""
    failure = error and KafkaError(error)
    return Mock(**{"error.return_value": failure, "value.return_value": json.dumps(APPLIED)})


def test_a_missing_right_on_a_group_does_not_end_the_wait() -> None:
    """The client asks for a coordinator, although the command uses no consumer group."""
    consumer = Mock()
    consumer.poll.side_effect = [polled(KafkaError.GROUP_AUTHORIZATION_FAILED), polled(None)]
    assert await_results(consumer, [ORIGIN], 60)[0].outcome == "applied"


def test_a_missing_right_on_the_outcomes_ends_the_wait() -> None:
    consumer = Mock()
    consumer.poll.side_effect = [polled(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(KafkaException):
        await_results(consumer, [ORIGIN], 60)
