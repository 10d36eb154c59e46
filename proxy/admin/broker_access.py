"""What the API writes to the broker, and reads back: cancels, what operators change at run time,
single ingress records."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from proxy.admin.problem import Problem
from proxy.config.settings import Settings
from proxy.config.target_limit import TargetLimit
from proxy.dispatch.partitioning import partition_of
from proxy.errors import ProxyError
from proxy.kafka.access import Right, grant, is_refusal
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
from proxy.kafka.ingress.ingress_lookup import IngressLookup
from proxy.kafka.ingress.unreadable import UnreadableBatch, unreadable_batch
from proxy.kafka.settings.settings_records import (
    ingest_key,
    limit_key,
    overdue_key,
    pause_key,
    rate_key,
    resumed_key,
    skipped_key,
    skipped_value,
)
from proxy.kafka.settings.settings_topic import open_settings_topic
from proxy.kafka.topics import admin_client, describe_topic
from proxy.protocol.body import Headers
from proxy.protocol.body import Message as Record
from proxy.protocol.headers import CANCEL, PURGE, PURGE_FROM, PURGE_TO, RECALL
from proxy.protocol.parsed import Purge
from proxy.protocol.proofs import HopAuthenticator
from proxy.scheduling.batch import AuxiliaryRecord

WRITE_WITHIN_S: Final = 8.0
READ_WITHIN_S: Final = 5.0
READ_THROUGH: Final = 1
NO_SUCH_PARTITION: Final = frozenset(
    {KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
)


class BrokerAccess:
    """One per process, made before the broker is needed. Calls may come from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._names = settings, settings.topics
        self.max_delay_ms = settings.max_delay_ms
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._until_s = 0.0
        self._lookup = IngressLookup(
            lambda: Consumer(lookup_config(settings)), self._names.ingress, self._check_deadline
        )

    def cancel(
        self, ident: bytes, key: bytes | None, partition: int | None, wait_s: float
    ) -> ControlResult:
        """Write a cancel to the partition given, else to that of the key, else to that of the id
        as a key; wait up to `wait_s` for what becomes of it. Raises Problem."""
        key, at = ident if key is None else key, -1 if partition is None else partition
        return self._take_back("cancel", (CANCEL, ident), key, at, wait_s)

    def recall(self, partition: int, origin: str, wait_s: float) -> ControlResult:
        """Write a recall of the record there, and wait likewise. Raises Problem."""
        return self._take_back("recall", (RECALL, origin.encode()), None, partition, wait_s)

    def purge(self, purge: Purge, wait_s: float) -> Sequence[ControlResult]:
        """Write the purge to each partition of the ingress, and wait likewise. Raises Problem."""
        signer, partitions = self._signer()
        return self._write_and_wait(
            [
                Request(signer.signed(number, None, None, _headers_of(purge)), partition=number)
                for number in range(partitions)
            ],
            wait_s,
        )

    def move(self, record: AuxiliaryRecord, wait_s: float) -> ControlResult:
        """Write what is to take the place of the record that it is about, and wait likewise: the
        outcome is that one's, where it has taken it. Raises Problem."""
        signer, _ = self._signer()
        key, value, at = record.key, record.value, record.partition
        headers = signer.signed(at, key, value, record.headers)
        return self._write_and_wait([Request(headers, key, value, at)], wait_s)[0]

    def _signer(self) -> tuple[HopAuthenticator, int]:
        """Who signs what only the proxy may write, and how many partitions the ingress has."""
        settings, ingress = self._settings, self._names.ingress
        try:
            topic = describe_topic(ingress, admin_client(settings), settings)
            with closing(open_settings_topic(settings, lambda: None)) as known:
                return HopAuthenticator(known.signing_key(), topic.topic_id), topic.partitions
        except KafkaException as error:
            raise self._refused(error.args[0], "Read", self._names.settings) from None
        except ProxyError as error:
            raise Problem(503, "broker", str(error)) from None

    def _take_back(
        self, kind: str, asked: tuple[str, bytes], key: bytes | None, at: int, wait_s: float
    ) -> ControlResult:
        """Write a cancel or recall. It is signed if the settings do not serve it to producers. Any
        recall is signed, so it needs no proof."""
        headers: Headers = [asked]
        if kind == "recall" or kind not in self._settings.requests.serve:
            signer, partitions = self._signer()
            at = partition_of(key, partitions) if at < 0 and key is not None else at
            headers = signer.signed(at, key, b"", headers)
        return self._write_and_wait([Request(headers, key, b"", at)], wait_s)[0]

    def _write_and_wait(self, controls: Sequence[Request], wait_s: float) -> list[ControlResult]:
        """Write these to the ingress, and wait for what becomes of them."""
        if not wait_s:
            return [ControlResult(origin) for origin in self._write_all(controls)]
        topic = self._names.outcomes
        with closing(self._consumer()) as outcomes:
            try:
                known = outcomes.list_topics(topic, READ_WITHIN_S).topics[topic]
                go_to_end(outcomes, topic, known.partitions, READ_WITHIN_S)
            except KafkaException as error:
                raise self._refused(error.args[0], "Read", topic) from None
            origins = self._write_all(controls)
            try:
                return await_results(outcomes, origins, wait_s)
            except KafkaException as error:
                why = self._refused(error.args[0], "Read", topic)
                raise Problem(503, "broker", f"{origins[0]} is written. {why}") from None

    def _write_all(self, controls: Sequence[Request]) -> list[str]:
        """The origins of all; what was written before one that fails counts, and is said."""
        origins: list[str] = []
        for one in controls:
            try:
                record = one.key, one.value, one.partition, one.headers
                origins.append(self._write(self._names.ingress, *record))
            except Problem as refused:
                if not origins:
                    raise
                written = f"{', '.join(origins)} are written, and count; call again for the others"
                raise Problem(503, "broker", f"{refused} {written}.") from None
        return origins

    def pause(self, pattern: str, now_ms: int) -> None:
        """Have all workers of the group hold back what is for these targets. Raises Problem."""
        self._set(pause_key(self._settings.group_id, pattern), {"paused_at": now_ms})

    def resume(self, pattern: str, per_second: int | None, now_ms: int) -> None:
        """Have them let it go again, at that rate if there is one. Raises Problem."""
        rate = {} if per_second is None else {"per_second": per_second}
        group_id = self._settings.group_id
        self._set(resumed_key(group_id, pattern), {"resumed_at": now_ms, **rate})
        self._set(pause_key(group_id, pattern), None)

    def pause_ingest(self, now_ms: int) -> None:
        """Have all workers of the group take nothing more in. Raises Problem."""
        self._set(ingest_key(self._settings.group_id), {"paused_at": now_ms})

    def resume_ingest(self) -> None:
        """Have them read on. Raises Problem."""
        self._set(ingest_key(self._settings.group_id), None)

    def limit(self, pattern: str, limit: TargetLimit, now_ms: int) -> None:
        """Set what counts for these targets; a rule for the overdue is written for audits first,
        before any record can end by it. Raises Problem."""
        group_id, rules = self._settings.group_id, limit.rules_json(pattern)
        if rules is not None:
            key = overdue_key(group_id, rules).encode()
            self._write(self._names.settings, key, rules.encode())
        said = {**limit.model_dump(), "set_at": now_ms}
        self._set(limit_key(group_id, pattern), said)

    def clear_limit(self, pattern: str) -> None:
        """Take it back: what the settings say counts again. Raises Problem."""
        self._set(limit_key(self._settings.group_id, pattern), None)

    def limit_workers(self, per_second: int, now_ms: int) -> None:
        """Set the bound on each worker. Raises Problem."""
        said = {"per_second": per_second, "set_at": now_ms}
        self._set(rate_key(self._settings.group_id), said)

    def clear_workers_limit(self) -> None:
        """Take it back: what the settings say counts again. Raises Problem."""
        self._set(rate_key(self._settings.group_id), None)

    def _set(self, key: str, said: Mapping[str, Any] | None) -> None:
        value = None if said is None else json.dumps(said).encode()
        self._write(self._names.settings, key.encode(), value)

    def unreadable_batch(self, partition: int) -> UnreadableBatch | None:
        """The batch at which reading from the committed offset fails; None where it does not.
        Raises Problem."""
        try:
            place = TopicPartition(self._names.ingress, partition)
            with closing(self._consumer()) as consumer:
                committed = consumer.committed([place], READ_WITHIN_S)[0]
            if committed.error is not None:
                raise KafkaException(committed.error)
            if committed.offset < 0:
                return None
            return unreadable_batch(
                lambda: Consumer(lookup_config(self._settings)),
                self._names.ingress,
                partition,
                committed.offset,
            )
        except KafkaException as error:
            raise self._refused(error.args[0], "Read", self._names.ingress) from None

    def skip(self, partition: int, batch: UnreadableBatch, now_ms: int) -> None:
        """Have all workers of the group skip the batch, now and whenever it is read again. Raises
        Problem."""
        settings, ingress = self._settings, self._names.ingress
        try:
            topic = describe_topic(ingress, admin_client(settings), settings)
        except KafkaException as error:
            raise self._refused(error.args[0], "Read", ingress) from None
        except ProxyError as error:
            raise Problem(503, "broker", str(error)) from None
        key = skipped_key(settings.group_id, topic.topic_id, partition, batch.base)
        value = skipped_value(batch.end, batch.error, now_ms)
        self._write(self._names.settings, key.encode(), value.encode())

    def read(self, partition: int, offset: int) -> Record | None:
        """A committed ingress record; None where the ingress has it no more. Raises Problem."""
        with self._lock:
            self._until_s = time.monotonic() + READ_WITHIN_S
            try:
                return self._lookup.read(partition, [offset], READ_THROUGH).get(offset)
            except KafkaException as error:
                raise self._refused(error.args[0], "Read", self._names.ingress) from None
            finally:
                self._lookup.close()

    def _check_deadline(self) -> None:
        if time.monotonic() > self._until_s:
            detail = "The broker has not given the record in time; is it written at all?"
            raise Problem(503, "broker", detail)

    def _write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int = BY_KEY,
        headers: Headers | None = None,
    ) -> str:
        """Write one record; its origin."""
        producer, request = self._open(), Request(headers or [], key, value, partition)
        try:
            return origin_of(write(producer, topic, request, WRITE_WITHIN_S))
        except BufferError:
            raise Problem(503, "busy", "Too much waits to be written; try again.") from None
        except Unconfirmed:
            self._close(producer)
            detail = "The broker has not confirmed the record in time: it may be written later."
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
        """The next call makes a new one, with the certificates that lie on disk by then."""
        with self._lock:
            if self._producer is producer:
                self._producer = None

    def _refused(self, error: KafkaError, operation: str, topic: str) -> Problem:
        said = error.str().rstrip(".")
        if error.code() in NO_SUCH_PARTITION:
            return Problem(404, "no-such-partition", f"The broker knows no such place: {said}.")
        if is_refusal(error):
            remedy = grant([Right(operation, "topic", topic)], self._settings)
            return Problem(503, "broker", f"The broker does not do it: {said}. {remedy}")
        return Problem(503, "broker", f"The broker does not do it: {said}.")

    def _consumer(self) -> Consumer:
        return Consumer({**lookup_config(self._settings), "auto.offset.reset": "latest"})


def _headers_of(purge: Purge) -> Headers:
    return [
        (PURGE, purge.targets.encode()),
        (PURGE_FROM, b"%d" % purge.due_from_ms),
        (PURGE_TO, b"%d" % purge.due_to_ms),
    ]
