"""Publishes batches with their offsets, each time in one transaction: all of it or nothing."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from confluent_kafka import Producer, TopicPartition

from proxy.dispatch.dispatcher import Dispatcher
from proxy.dispatch.outgoing_records import OutgoingRecords
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import ReleaseControl
from proxy.publishing.kafka_transactions import KafkaTransactions
from proxy.publishing.record_writer import RecordWriter
from proxy.publishing.targets import Targets
from proxy.publishing.throttling import Throttling
from proxy.publishing.transaction import Transaction, TransactionContents
from proxy.records.hop_mac import HopAuthenticator
from proxy.requests.policy import RetryGroup
from proxy.scheduling.batch import Batch


class Publisher:
    """Makes transactions of a transactional producer, one at a time.

    `heartbeat` is called while waiting for the broker, so that waiting is not taken for hanging.
    `new_producer`, `new_commits` and `timeout_s` are as `KafkaTransactions` takes them. `retry`
    says when what could not be published is tried again, `release` what is held back though it
    could be; `authenticator` signs what goes to the ingress; `stamp_ms` gives the time that records
    carry; `refusals` and `throttling` are the worker's.
    """

    def __init__(
        self,
        new_producer: Callable[[int], Producer],
        targets: Targets,
        dead_letter_topic: str,
        outcome_topic: str,
        heartbeat: Callable[[], None],
        new_commits: Callable[[], Executor],
        retry: RetryGroup,
        release: ReleaseControl,
        authenticator: HopAuthenticator,
        stamp_ms: Callable[[], int],
        timeout_s: float,
        refusals: Refusals,
        throttling: Throttling | None = None,
    ) -> None:
        self._targets, self._retry, self._release = targets, retry, release
        self._refusals = refusals
        self._authenticator = authenticator
        self._dead_letter_topic, self._outcome_topic = dead_letter_topic, outcome_topic
        self._kafka = KafkaTransactions(
            new_producer, new_commits, heartbeat, timeout_s, throttling or Throttling()
        )
        self._writer = RecordWriter(self._kafka, heartbeat, stamp_ms)
        self._last_topics: set[str] = set()

    def publish(
        self,
        batches: Sequence[Batch],
        offsets: Sequence[TopicPartition],
        group_metadata: object,
        now_ms: int,
    ) -> Transaction:
        """One transaction of all of it, on its way: what cannot be delivered ends otherwise.

        Wait for it before the next one: that raises GroupMoved when the group no longer takes the
        offsets of `group_metadata`'s generation, Throttled when the broker does not let it through
        in time. Raises SessionLost when the outcome is not known or this producer has been fenced:
        memory is not to be trusted over the broker.
        """
        known, refusals = self._targets.known, self._refusals
        refusals.begin(now_ms)
        contents = TransactionContents(
            batches,
            self._targets,
            self._writer,
            Dispatcher(known, refusals, self._retry, self._release, now_ms),
            OutgoingRecords(
                self._dead_letter_topic, self._outcome_topic, known, refusals, self._authenticator
            ),
            refusals,
            self._last_topics | {self._dead_letter_topic, self._outcome_topic},
        )
        self._last_topics = contents.topics
        transaction = Transaction(self._kafka, contents, offsets, group_metadata, now_ms)
        transaction.send()
        return transaction

    def close(self) -> None:
        """Give the producer up with all it has in hand; the broker keeps what is committed."""
        self._kafka.close()
