"""Records of the ingress as commands write them, and what comes back."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.dead_letters.letter import Origin
from proxy.errors import BrokerLate, ProxyError
from proxy.kafka.access import Connection, client_config, explain, explained
from proxy.kafka.client_settings import connected, lookup_config
from proxy.kafka.ingress.ingress import NOT_IN_THE_LOG
from proxy.kafka.ingress.ingress_lookup import IngressLookup
from proxy.protocol.body import Headers
from proxy.protocol.body import Message as IngressMessage
from proxy.protocol.headers import CANCEL, ID, KEY, RECALL, TRANSACTION, UNREADABLE, read_headers
from proxy.protocol.outcomes import APPLIED, Rejection, read_outcome
from proxy.protocol.parsed import Prepare, Scheduled
from proxy.protocol.request_reader import request_reader

# Headers of records as a consumer got them.


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A record's headers in order; none at all is an empty list.

    Of a record with a header name that is not UTF-8 the client library can show none: one mark
    stands for them.
    """
    try:
        headers = read_headers(message) or []
    except (SystemError, UnicodeDecodeError):
        return [(UNREADABLE, None)]
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, raw.encode() if isinstance(raw, str) else raw) for name, raw in pairs]


# A record for the ingress topic as the commands write it, and what the proxy will make of it.

BY_KEY: Final = -1


class IngressRecord(NamedTuple):
    """What is written. `partition`: of the ingress; BY_KEY places it as Java clients do."""

    headers: Headers
    key: bytes | None = None
    value: bytes | None = None
    partition: int = BY_KEY


class ExpectedEnd(NamedTuple):
    """What will come of a record under these settings: a delivery, or a dead letter and why.
    Neither of a control record, which acts on another."""

    target: str | None
    due_ms: int | None
    rejection: Rejection | None


def named(ident: str, headers: Headers, key: bytes | None, value: bytes | None) -> IngressRecord:
    """A record with an id. It is keyed by the id, so that a cancel finds its way without knowing
    the key, which goes to the target by `timer-key`."""
    asked: Headers = [*headers, (ID, ident.encode()), (KEY, key)]
    return IngressRecord(asked, ident.encode(), value)


def cancel_of(ident: str, partition: int | None = None) -> IngressRecord:
    """A record that takes back what pends with the id."""
    return _control([(CANCEL, ident.encode())], ident, partition)


def decision_on(ident: str, what: str, partition: int | None = None) -> IngressRecord:
    """A record that decides a half message: `what` is `commit` or `rollback`."""
    return _control([(TRANSACTION, what.encode()), (ID, ident.encode())], ident, partition)


def recall_of(
    origin: Origin, key: bytes | None = None, ident: bytes | None = None
) -> IngressRecord:
    """A record that takes back the one at this origin, by the key or id that this one has; it goes
    to the same partition."""
    headers: Headers = [(RECALL, str(origin).encode())]
    if ident is not None:
        headers.append((ID, ident))
    return IngressRecord(headers, key, None, origin.partition)


def _control(headers: Headers, ident: str, partition: int | None) -> IngressRecord:
    chosen = BY_KEY if partition is None else partition
    return IngressRecord(headers, ident.encode(), None, chosen)


def expected_end(record: IngressRecord, settings: Settings, timestamp_ms: int) -> ExpectedEnd:
    """What a proxy with these settings will do with a record to be delivered."""
    policy = replace(policy_of(settings, None), roll_after_ms=None)
    parsed = request_reader(policy).read(
        record.headers, record.key, record.value, timestamp_ms, 0, 0
    )
    if isinstance(parsed, Rejection):
        return ExpectedEnd(None, None, parsed)
    if not isinstance(parsed, Scheduled | Prepare):
        return ExpectedEnd(None, None, None)
    return ExpectedEnd(parsed.entry[2], parsed.due_ms, None)


# A recall that proves that it knows its record: with the key and id of the record itself.


def proven_recall(settings: Settings, origin: Origin) -> IngressRecord:
    """Read the record at the origin and return its recall.

    Without a proof where the ingress does not hold the record. Raises as `write_to_ingress` does.
    """
    record = _read(settings, origin)
    if record is None:
        return recall_of(origin)
    return recall_of(origin, record.key(), dict(record.headers() or []).get(ID))


def _read(settings: Settings, origin: Origin) -> IngressMessage | None:
    topic, partition, offset = origin
    if partition >= len(Connection(settings).describe_topic(topic, "Read").partitions):
        return None
    lookup = IngressLookup(lambda: Consumer(lookup_config(settings)), topic, lambda: None)
    with closing(lookup):
        try:
            return lookup.read(partition, [offset], 0).get(offset)
        except KafkaException as error:
            if error.args[0].code() == NOT_IN_THE_LOG:
                return None
            raise explain(error.args[0], settings, topic, "Read") from None


# Writes records to the ingress topic for the commands, one at a time.


class PartitionUnknown(ProxyError):
    """The ingress topic has no such partition."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(
            f"The topic {topic} has no partition {partition}.",
            f"Name one from 0 to {partitions - 1}, as in the record's origin (topic/partition/"
            "offset), or leave --partition out if the record was keyed by its id.",
        )


def ingress_producer(settings: Settings) -> Producer:
    """A producer that places records by key as Java clients do: all that belongs to one id meets
    in one partition, whoever writes it."""
    with explained(settings):
        return Producer(
            client_config(
                settings,
                acks="all",
                enable_idempotence=True,
                linger_ms=0,
                partitioner="murmur2_random",
            )
        )


def write_to_ingress(settings: Settings, record: IngressRecord) -> Message:
    """Write one record and wait for the broker's receipt.

    Raises TopicUnknown, PartitionUnknown, BrokerUnreachable, BrokerLate or BrokerRefused.
    """
    ingress = settings.topics.ingress
    partitions = len(Connection(settings).describe_topic(ingress, "Write").partitions)
    if record.partition >= partitions:
        raise PartitionUnknown(ingress, record.partition, partitions)
    producer = connected(ingress_producer(settings), ingress)
    reports: list[tuple[Any, Message]] = []
    producer.produce(
        ingress,
        key=record.key,
        value=record.value,
        headers=list(record.headers),
        partition=record.partition,
        on_delivery=lambda error, message: reports.append((error, message)),
    )
    producer.flush(Connection.limit_s)
    if not reports:
        unconfirmed = "it did not confirm the record, which may count all the same"
        raise BrokerLate(settings.bootstrap_servers, unconfirmed)
    error, message = reports[0]
    if error is not None:
        raise explain(error, settings, ingress, "Write")
    return message


def origin_of(message: Message) -> str:
    """`topic/partition/offset` of a record that was written."""
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


# Records of a topic as they arrive, for commands that show or await them.

AGAIN_S = 0.1
NOT_KNOWN_YET = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


def open_consumer(settings: Settings, *topics: str, from_beginning: bool) -> Consumer:
    """A read_committed consumer of all partitions that joins no group and commits nothing.

    Raises as `Connection.describe_topic` does.
    """
    connection = Connection(settings)
    partitions = [
        TopicPartition(topic, part.id)
        for topic in topics
        for part in connection.describe_topic(topic, "Read").partitions
    ]
    with explained(settings):
        consumer = Consumer(
            client_config(
                settings,
                group_id="kafka-delay-proxy-watch",
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_wait_max_ms=50,
            )
        )
        for partition in partitions:
            partition.offset = OFFSET_BEGINNING
            if not from_beginning:
                partition.offset = _end_of(consumer, partition)
        consumer.assign(partitions)
    return consumer


def _end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """The partition's end; of a topic just made the broker may not know the leader for a moment."""
    deadline = time.monotonic() + Connection.limit_s
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, Connection.limit_s)[1])
        except KafkaException as error:
            if error.args[0].code() not in NOT_KNOWN_YET or time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)


def arrivals(
    consumer: Consumer, settings: Settings, end_monotonic: float | None
) -> Iterator[Message]:
    """Records as they come, until `end_monotonic` or for ever; raises what does not pass."""
    while end_monotonic is None or time.monotonic() < end_monotonic:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.fatal() or not error.retriable():
                raise explain(error, settings, message.topic(), "Read")
            continue
        yield message


# Writes a control record (cancel, recall, commit, rollback) and waits for its outcome.


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
