"""Writes a control record (cancel, recall, commit, rollback) and waits for its outcome."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import Consumer

from proxy.cli.kafka.arrivals import arrivals, open_consumer
from proxy.cli.kafka.ingress_record import IngressRecord
from proxy.cli.kafka.ingress_writer import origin_of, write_to_ingress
from proxy.config.settings import Settings
from proxy.records.outcome import APPLIED, read_outcome


class ControlResult(NamedTuple):
    """What became of a control record; `outcome` is None where none came in time.

    `ended`: the outcome of the record that it ended, as the proxy wrote it, if it was seen.
    """

    origin: str
    outcome: str | None = None
    detail: str = ""
    ended: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int:
        """0 where it did what it was to do."""
        return 0 if self.outcome == APPLIED else 1


def write_and_wait(
    settings: Settings, record: IngressRecord, named: str, limit_s: float
) -> ControlResult:
    """Write a control record and wait for its outcome.

    The outcomes are read from their end as it was before the record was written. Raises as
    `write_to_ingress` does, and TopicUnknown where there are no outcomes yet.
    """
    outcomes = settings.topics.outcomes
    with closing(open_consumer(settings, outcomes, from_beginning=False)) as consumer:
        origin = origin_of(write_to_ingress(settings, record))
        return find_result(_outcomes(consumer, settings, limit_s), origin, named)


def find_result(outcomes: Iterator[dict[str, Any]], origin: str, named: str) -> ControlResult:
    """What became of the control record at `origin`, found among outcomes as they come.

    The outcome of what it ended comes before its own, in the same transaction, and has what was
    `named`: as its id, in the same partition, or as its origin.
    """
    partition = origin.rpartition("/")[0]
    ended = None
    for outcome in outcomes:
        if outcome["origin"] == origin:
            return ControlResult(origin, outcome["outcome"], outcome.get("detail") or "", ended)
        is_there = outcome["origin"].rpartition("/")[0] == partition
        if outcome["origin"] == named or (is_there and outcome.get("id") == named):
            ended = outcome
    return ControlResult(origin)


def _outcomes(consumer: Consumer, settings: Settings, limit_s: float) -> Iterator[dict[str, Any]]:
    for message in arrivals(consumer, settings, time.monotonic() + limit_s):
        if (outcome := read_outcome(message.value())) is not None:
            yield outcome
