"""Writing of control records and settings for the API, and reading of single records."""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from proxy.admin.problem import Problem
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings, TargetLimit
from proxy.dispatch.partitioning import partition_of
from proxy.errors import ProxyError
from proxy.kafka.access import TopicUnknown, grant, is_refusal, topic_rights
from proxy.kafka.client_settings import common_config, connected, lookup_config
from proxy.kafka.control import (
    BY_KEY,
    PLACES_BY_KEY,
    ControlResult,
    Request,
    Unconfirmed,
    await_results,
    go_to_end,
    origin_of,
    write,
)
from proxy.kafka.group import ask_in_thread
from proxy.kafka.reader import IngressLookup
from proxy.kafka.settings_topic import (
    INGEST,
    LIMITS,
    PAUSED,
    RATE,
    RESUMED,
    SKIPPED,
    open_settings_topic,
    overdue_key,
    settings_key,
    skipped_value,
)
from proxy.kafka.topics import (
    admin_client,
    changes_topic,
    create_missing_topics,
    describe_topic,
)
from proxy.kafka.unreadable import UnreadableBatch, unreadable_batch
from proxy.protocol.body import Headers
from proxy.protocol.body import Message as Record
from proxy.protocol.headers import CANCEL, PURGE, PURGE_FROM, PURGE_TO, RECALL
from proxy.protocol.parsed import Purge
from proxy.protocol.proofs import HopAuthenticator
from proxy.scheduling.batch import OutgoingRecord

WRITE_WITHIN_S: Final = 8.0
READ_WITHIN_S: Final = 5.0
READ_THROUGH: Final = 100
JUMP_S: Final = 0.05
CLUSTER_WITHIN_S: Final = 2.0
CHANGES_PARTITION: Final = 0
"""All changes go to one partition, so they have one order."""
NO_SUCH_PARTITION: Final = frozenset(
    {KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
)


class IngressFacts(NamedTuple):
    """The cluster's id, and the number of ingress partitions."""

    cluster: str
    partitions: int


class BrokerAccess:
    """Access to the broker. Thread-safe. Methods raise Problem.

    With `wait_s` a method waits at most this long for the outcomes of its records."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._names = settings, settings.topics
        self.max_delay_ms = settings.max_delay_ms
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._has_changes = False
        self._cluster_id: str | None = None

    def cluster_id(self) -> str | None:
        """Return the id of the Kafka cluster, or None if the broker does not answer in time."""
        if self._cluster_id is None:
            with suppress(KafkaException), closing(self._consumer()) as consumer:
                known = consumer.list_topics(self._names.ingress, CLUSTER_WITHIN_S)
                self._cluster_id = known.cluster_id
        return self._cluster_id

    def ingress(self) -> IngressFacts:
        topic = self._names.ingress
        with self._asking(topic), closing(self._consumer()) as consumer:
            known = consumer.list_topics(topic, READ_WITHIN_S)
            return IngressFacts(str(known.cluster_id), len(known.topics[topic].partitions))

    def instances(self) -> set[str]:
        """Return the names of the instances in the consumer group. Raises OwnersUnknown."""
        config, group = common_config(self._settings), self._settings.group_id
        return ask_in_thread(config, group).result().instances()

    def cancel(
        self, ident: bytes, key: bytes | None, partition: int | None, wait_s: float
    ) -> ControlResult:
        """Write a cancel. If `partition` is None, choose it by `key`. If there is no key, choose it
        by the id."""
        at = BY_KEY if partition is None else partition
        request = Request([(CANCEL, ident)], ident if key is None else key, b"", at)
        if "cancel" not in self._settings.requests.serve:
            return self._write_signed(request, wait_s)
        return self._write_and_wait([request], wait_s)[0]

    def recall(self, partition: int, origin: str, wait_s: float) -> ControlResult:
        """Write a recall. It is signed, so it needs no proof."""
        return self._write_signed(
            Request([(RECALL, origin.encode())], None, b"", partition), wait_s
        )

    def move(self, record: OutgoingRecord, wait_s: float) -> ControlResult:
        """Write a move. The result has the outcome of the record that the move replaces."""
        return self.move_all([record], wait_s)[0]

    def move_all(self, records: Sequence[OutgoingRecord], wait_s: float) -> list[ControlResult]:
        """Write moves together. If a write fails, some moves may be written, and take effect."""
        signer, _ = self._signer()
        return self._write_and_wait(
            [
                Request(
                    signer.signed(one.partition, one.key, one.value, one.headers),
                    one.key,
                    one.value,
                    one.partition,
                )
                for one in records
            ],
            wait_s,
        )

    def purge(self, purge: Purge, wait_s: float) -> Sequence[ControlResult]:
        signer, partitions = self._signer()
        headers: Headers = [
            (PURGE, purge.targets.encode()),
            (PURGE_FROM, b"%d" % purge.due_from_ms),
            (PURGE_TO, b"%d" % purge.due_to_ms),
        ]
        purges = [
            Request(signer.signed(number, None, None, headers), partition=number)
            for number in range(partitions)
        ]
        return self._write_and_wait(purges, wait_s)

    def _write_signed(self, request: Request, wait_s: float) -> ControlResult:
        signer, partitions = self._signer()
        key, at = request.key, request.partition
        at = partition_of(key, partitions) if at == BY_KEY and key is not None else at
        headers = signer.signed(at, key, request.value, request.headers)
        signed = request._replace(headers=headers, partition=at)
        return self._write_and_wait([signed], wait_s)[0]

    def _signer(self) -> tuple[HopAuthenticator, int]:
        settings = self._settings
        with self._asking(self._names.settings):
            admin = admin_client(settings)
            topic = describe_topic(self._names.ingress, admin, settings)
            with closing(open_settings_topic(settings, lambda: None, admin)) as known:
                return HopAuthenticator(known.signing_key(), topic.topic_id), topic.partitions

    def _write_and_wait(self, controls: Sequence[Request], wait_s: float) -> list[ControlResult]:
        if not wait_s:
            return [ControlResult(origin) for origin in self._write_all(controls)]
        topic = self._names.outcomes
        with closing(self._consumer()) as outcomes:
            with self._asking(topic):
                known = outcomes.list_topics(topic, READ_WITHIN_S).topics[topic]
                go_to_end(outcomes, topic, known.partitions, READ_WITHIN_S)
            origins = self._write_all(controls)
            with self._asking(topic, said=f"The request {origins[0]} is written. "):
                return await_results(outcomes, origins, wait_s)

    def _write_all(self, controls: Sequence[Request]) -> list[str]:
        """Write the records and return their origins. If a write fails, the error names the records
        that were written before."""
        origins: list[str] = []
        for one in controls:
            try:
                origins.append(self._write(self._names.ingress, one))
            except Problem as refused:
                if not origins:
                    raise
                done = ", ".join(origins)
                written = f"{done} are written, and take effect. Call again for the others"
                raise Problem(503, "broker", f"{refused} {written}.") from None
        return origins

    def pause(self, pattern: str) -> None:
        self._set(PAUSED, pattern, {"paused_at": wall_clock_ms()})

    def resume(self, pattern: str, per_second: int | None) -> None:
        rate = {} if per_second is None else {"per_second": per_second}
        self._set(RESUMED, pattern, {"resumed_at": wall_clock_ms(), **rate})
        self._set(PAUSED, pattern, None)

    def pause_ingest(self, *, is_paused: bool) -> None:
        self._set(INGEST, "paused", {"paused_at": wall_clock_ms()} if is_paused else None)

    def limit(self, pattern: str, limit: TargetLimit | None) -> None:
        """Set a rate cap, a rule for overdue records, or both. None clears them.

        A second record has the rule for audits. The second record is written first, because audits
        must know the rule before the rule ends records."""
        if limit is None:
            self._set(LIMITS, pattern, None)
            return
        rules = limit.rules_json(pattern)
        if rules is not None:
            self._set_raw(overdue_key(self._settings.group_id, rules), rules)
        self._set(LIMITS, pattern, {**limit.model_dump(), "set_at": wall_clock_ms()})

    def limit_workers(self, per_second: int | None) -> None:
        """Set the rate cap on each worker. None clears it."""
        said = {"per_second": per_second, "set_at": wall_clock_ms()}
        self._set(RATE, "worker", None if per_second is None else said)

    def _set(self, kind: str, name: str, said: Mapping[str, Any] | None) -> None:
        key = settings_key(kind, self._settings.group_id, name)
        self._set_raw(key, None if said is None else json.dumps(said))

    def _set_raw(self, key: str, value: str | None) -> None:
        encoded = None if value is None else value.encode()
        self._write(self._names.settings, Request([], key.encode(), encoded))

    def write_change(self, value: bytes) -> None:
        """Write a change to its topic. Create the topic on first use."""
        topic = self._names.changes
        if not self._has_changes:
            with self._asking(topic):
                self._ensure_changes(topic)
            self._has_changes = True
        try:
            self._write(topic, Request([], None, value, CHANGES_PARTITION))
        except Problem:
            self._has_changes = False
            raise

    def _ensure_changes(self, topic: str) -> None:
        admin = admin_client(self._settings)
        try:
            admin.describe_topic(topic, "Write")
        except TopicUnknown:
            if not self._names.create:
                raise
            create_missing_topics(self._settings, admin, changes_topic(self._settings))

    def unreadable_batch(self, partition: int) -> UnreadableBatch | None:
        """Return the first batch after the committed offset if it cannot be read, else None."""
        ingress = self._names.ingress
        with self._asking(ingress):
            with closing(self._consumer()) as consumer:
                committed = consumer.committed([TopicPartition(ingress, partition)], READ_WITHIN_S)
            if committed[0].error is not None:
                raise KafkaException(committed[0].error)
            offset = committed[0].offset
            if offset < 0:
                return None
            settings = lookup_config(self._settings)
            return unreadable_batch(lambda: Consumer(settings), ingress, partition, offset)

    def skip(self, partition: int, batch: UnreadableBatch) -> None:
        """Make all workers of the group skip the batch each time that they read it."""
        settings, ingress = self._settings, self._names.ingress
        with self._asking(ingress):
            topic = describe_topic(ingress, admin_client(settings), settings)
        place = topic.topic_id, partition, batch.base
        key = settings_key(SKIPPED, settings.group_id, *place)
        self._set_raw(key, skipped_value(batch.end, batch.error, wall_clock_ms()))

    def read(self, partition: int, offset: int) -> Record | None:
        return self.read_all({partition: [offset]})[partition].get(offset)

    def read_all(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, dict[int, Record]]:
        """Return the records that the ingress has, by partition and offset. `wanted` has the sorted
        offsets of each partition."""
        within_s = READ_WITHIN_S + JUMP_S * sum(map(len, wanted.values()))
        until_s, settings = time.monotonic() + within_s, lookup_config(self._settings)

        def check_deadline() -> None:
            if time.monotonic() > until_s:
                detail = "The broker did not return the record in time. Check that it was written."
                raise Problem(503, "broker", detail)

        ingress = self._names.ingress
        lookup = IngressLookup(lambda: Consumer(settings), ingress, check_deadline)
        with self._asking(ingress), closing(lookup):
            return {number: lookup.read(number, wanted[number], READ_THROUGH) for number in wanted}

    def _write(self, topic: str, request: Request) -> str:
        producer = self._open()
        try:
            return origin_of(write(producer, topic, request, WRITE_WITHIN_S))
        except BufferError:
            raise Problem(
                503, "busy", "Too many requests are queued for the broker. Try again."
            ) from None
        except Unconfirmed:
            self._close(producer)
            detail = "The broker did not confirm the record in time. It may still be written."
            raise Problem(503, "broker", detail) from None
        except KafkaException as error:
            self._close(producer)
            raise self._refused(error.args[0], "Write", topic) from None

    def _open(self) -> Producer:
        with self._lock:
            if self._producer is None:
                settings = {
                    **common_config(self._settings),
                    **PLACES_BY_KEY,
                    "message.timeout.ms": int(WRITE_WITHIN_S * 1000),
                    "reconnect.backoff.max.ms": 1_000,
                }
                self._producer = connected(Producer(settings), self._settings.topics.ingress)
            return self._producer

    def _close(self, producer: Producer) -> None:
        """Drop the producer. The next producer reads the certificates again."""
        with self._lock:
            if self._producer is producer:
                self._producer = None

    @contextmanager
    def _asking(self, topic: str, said: str = "") -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            refused = self._refused(error.args[0], "Read", topic)
            raise (Problem(503, "broker", f"{said}{refused}") if said else refused) from None
        except ProxyError as error:
            raise Problem(503, "broker", str(error)) from None

    def _refused(self, error: KafkaError, operation: str, topic: str) -> Problem:
        said = error.str().rstrip(".")
        if error.code() in NO_SUCH_PARTITION:
            return Problem(
                404, "no-such-partition", f"The broker knows no such topic or partition: {said}."
            )
        if is_refusal(error):
            remedy = grant(topic_rights(topic, operation), self._settings)
            return Problem(503, "broker", f"The broker refused: {said}. {remedy}")
        return Problem(503, "broker", f"The broker refused: {said}.")

    def _consumer(self) -> Consumer:
        return Consumer({**lookup_config(self._settings), "auto.offset.reset": "latest"})
