"""Records that commands and the admin port write to the ingress, and their outcomes
(docs/guide.md#outcomes). To miss no outcome, call `go_to_end` on the outcomes topic before `write`.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from proxy.kafka.access import is_refusal
from proxy.protocol.body import Headers
from proxy.protocol.outcomes import APPLIED, read_outcome

BY_KEY: Final = -1
"""The key decides on the partition, as in Java clients."""
POLL_S: Final = 0.1
AGAIN_S: Final = 0.1
PLACES_BY_KEY: Final[dict[str, str | int | bool]] = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "linger.ms": 0,
}
NOT_KNOWN_YET: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class Request(NamedTuple):
    """A record for the ingress."""

    headers: Headers
    key: bytes | None = None
    value: bytes | None = None
    partition: int = BY_KEY


class Unconfirmed(Exception):
    """The broker has not confirmed a record in time. The record may still be written."""


class ControlResult(NamedTuple):
    """The result of a control record. `outcome` is None if it did not come in time. `ended`: the
    outcome of the record that the control record ended."""

    origin: str
    outcome: str | None = None
    detail: str | None = None
    ended: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int:
        return 0 if self.outcome == APPLIED else 1


def write(producer: Producer, topic: str, request: Request, within_s: float) -> Message:
    """Write a record and return the broker's receipt. Raises KafkaException, Unconfirmed, and
    BufferError if the producer's queue is full."""
    reports: list[tuple[KafkaError | None, Message]] = []
    headers: list[Any] = list(request.headers)
    producer.produce(
        topic,
        request.value,
        request.key,
        request.partition,
        headers=headers,
        on_delivery=lambda error, message: reports.append((error, message)),
    )
    until_s = time.monotonic() + within_s
    while not reports and time.monotonic() < until_s:
        producer.poll(POLL_S)
    if not reports:
        raise Unconfirmed
    error, message = reports[0]
    if error is not None:
        raise KafkaException(error)
    return message


def origin_of(message: Message) -> str:
    """Return `topic/partition/offset` of a written record."""
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


def go_to_end(consumer: Consumer, topic: str, partitions: Iterable[int], within_s: float) -> None:
    """Assign the partitions to the consumer, at their ends. Raises KafkaException."""
    places = [TopicPartition(topic, partition) for partition in partitions]
    for place in places:
        place.offset = _end_of(consumer, place, within_s)
    consumer.assign(places)


def _end_of(consumer: Consumer, place: TopicPartition, within_s: float) -> int:
    """Return the end. Retry while brokers do not know the leader of a new topic."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, within_s)[1])
        except KafkaException as error:
            if error.args[0].code() not in NOT_KNOWN_YET or time.monotonic() > until_s:
                raise
            time.sleep(AGAIN_S)


def await_results(
    consumer: Consumer, origins: Sequence[str], within_s: float, named: str | None = None
) -> list[ControlResult]:
    """Wait for the outcomes of control records. The consumer's position must lie before these
    outcomes. Raises KafkaException if the user may not read outcomes."""
    return find_results(_outcomes(consumer, time.monotonic() + within_s), origins, named)


def find_results(
    outcomes: Iterable[dict[str, Any]], origins: Sequence[str], named: str | None = None
) -> list[ControlResult]:
    """Find the outcomes of control records.

    A move that succeeds has no outcome. The moved record's outcome has the move as `next_origin`.
    `named` is the origin or id of the record to be ended. This record's outcome comes before the
    outcome of the control record, in the same transaction.
    """
    found = {origin: ControlResult(origin) for origin in origins}
    unknown, ended = set(origins), None
    partitions = {origin.rpartition("/")[0] for origin in origins}
    for outcome in outcomes:
        names = (outcome["origin"], outcome.get("next_origin"))
        for origin in [one for one in unknown if one in names]:
            result = outcome["outcome"], outcome.get("detail")
            found[origin] = ControlResult(origin, *result, ended)
            unknown.discard(origin)
        if not unknown:
            break
        is_there = outcome["origin"].rpartition("/")[0] in partitions
        if named is not None and (
            outcome["origin"] == named or (is_there and outcome.get("id") == named)
        ):
            ended = outcome
    return list(found.values())


def _outcomes(consumer: Consumer, until_s: float) -> Iterator[dict[str, Any]]:
    while time.monotonic() < until_s:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            if (outcome := read_outcome(message.value())) is not None:
                yield outcome
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            continue  # the client asks for a coordinator that it does not need
        elif error.fatal() or is_refusal(error):
            raise KafkaException(error)
