"""Times of local retries, and the end of retrying."""

from __future__ import annotations

import pytest

from kafka_delay.kafka import Place
from kafka_delay.retries import DELAYS, Failure, Received, RetryPlan
from proxy.protocol.times import parse_levels

PLACE = Place("orders", 0, 7)
NO = Failure("ValueError: no")


def failed(times: int) -> Received:
    return Received(PLACE, PLACE, times, b"k", b"v", [], 0)


@pytest.fixture
def retries() -> RetryPlan:
    return RetryPlan("billing", ["orders"], "retry.billing", 3, delays_ms=(1_000, 5_000))


def test_each_failure_has_its_delay_and_the_last_delay_goes_for_all_that_follow(
    retries: RetryPlan,
) -> None:
    assert [retries.wait_s(failed(times), NO) for times in range(3)] == [1, 5, 5]


def test_a_handler_chooses_the_delay_itself(retries: RetryPlan) -> None:
    failure = Failure("busy", delay="2h")
    assert retries.wait_s(failed(0), failure) == 7_200


@pytest.mark.parametrize("failure", [NO, Failure("busy", delay="2h")])
def test_after_so_many_attempts_it_is_given_up(retries: RetryPlan, failure: Failure) -> None:
    assert retries.wait_s(failed(2), failure) is not None
    assert retries.wait_s(failed(3), failure) is None


def test_what_is_final_is_given_up_at_once(retries: RetryPlan) -> None:
    assert retries.wait_s(failed(0), Failure("hopeless", is_final=True)) is None


def test_the_usual_delays_begin_as_rocketmq_suspends_and_outlive_an_hour() -> None:
    delays_ms = parse_levels(DELAYS)
    assert delays_ms[0] == 1_000
    assert sum(delays_ms[:16]) > 3_600_000
