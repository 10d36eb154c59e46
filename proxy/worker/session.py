"""One session with the broker: a consumer, a transactional producer, and the shards they own.

Nothing of a session outlives it: when anything about a transaction is uncertain it is dropped
as a whole, and the next one recovers its shards from the broker (DESIGN 5.6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import structlog
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from proxy.admin.questions import Desk
from proxy.clock import Clock
from proxy.config.policy_from_settings import policy_of, refuse_outrun
from proxy.config.settings import Settings
from proxy.dispatch.rate_limit import release_rate
from proxy.dispatch.release_control import release_control
from proxy.kafka.client_settings import (
    common_config,
    connected,
    consumer_config,
    is_compressing,
    lookup_config,
    producer_config,
)
from proxy.kafka.commit_thread import CommitThread
from proxy.kafka.derived_topics import NamedByProxy
from proxy.kafka.ingress import Ingress
from proxy.kafka.ingress_lookup import IngressLookup
from proxy.kafka.pauses import Pauses, pauses_config
from proxy.kafka.policy_topic import PolicyTopic
from proxy.kafka.retention_watch import RetentionWatch, aging_after_ms
from proxy.kafka.topics import describe_topic, retention_ms
from proxy.kafka.unassigned_partitions import OrphanWatch, visit_group
from proxy.publishing.errors import SessionLost
from proxy.publishing.publisher import Publisher
from proxy.publishing.targets import Targets
from proxy.records.message import Message
from proxy.records.position import PolicyFrom
from proxy.recovery.fetched_bodies import FetchedBodies
from proxy.recovery.local_state import LocalState
from proxy.recovery.recovery import Judge, Recovery
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.status import StatusBoard
from proxy.worker.pacing import Pacing, TransactionLimits
from proxy.worker.pipeline import Pipeline
from proxy.worker.reporter import Reporter
from storage.options import Options
from storage.store import Store

HALF_REACH: Final = 500
"""Half messages that nobody decides lie close together: so many records are read through."""
REPORT_EVERY_S: Final = 0.25
WEIGH_EVERY_S: Final = 10.0

log = structlog.get_logger(__name__)


def _retention_ms(settings: Settings, admin: AdminClient) -> int | None:
    """How long the ingress keeps records. Raises SettingsError when that is too short."""
    kept_ms = retention_ms(settings.topics.ingress, admin)
    refuse_outrun(settings, kept_ms)
    return kept_ms


class Session:
    """Joins the group and turns the pipeline until told to stop, or until an error ends it.

    Order of starting: the producer first, since its initialisation fences a predecessor and so
    settles the committed offsets that the shards then start from.
    """

    def __init__(
        self,
        settings: Settings,
        worker: int,
        clock: Clock,
        metrics: Metrics,
        board: StatusBoard,
        desk: Desk,
    ) -> None:
        names = settings.topics
        admin = AdminClient(common_config(settings))
        self._topic = describe_topic(names.ingress, admin)
        self._policies = PolicyTopic(common_config(settings), names.settings, settings.group_id)
        kept_ms = _retention_ms(settings, admin)
        policy = policy_of(settings, kept_ms)
        digest = self._policies.ensure(policy)
        self._retention = RetentionWatch(
            admin, names.ingress, aging_after_ms(policy.roll_after_ms, kept_ms)
        )
        self._reporter = Reporter(names.ingress, clock, metrics, board, self._retention)
        self._release = release_control(settings.release)
        self._pauses = _pauses(settings, self._reporter.beat)
        self._publisher = Publisher(
            connected(Producer(producer_config(settings, worker)), names.ingress),
            _targets(settings, admin),
            names.dead_letters,
            names.outcomes,
            self._reporter.beat,
            CommitThread(),
            policy.retry_of(""),
            self._release,
        )
        self._metrics, self._desk = metrics, desk
        metrics.ingress_partitions.set(self._topic.partitions)
        self._is_lost = False
        self._puts_stubs = settings.bodies == "kafka"
        self._local = LocalState(
            settings.data_dir,
            names.ingress,
            self._topic.topic_id,
            Options(precision_ms=settings.wheel.precision_ms, slots=settings.wheel.slots),
            settings.store,
            puts_stubs=self._puts_stubs,
        )
        self._lookup = IngressLookup(
            lambda: Consumer(lookup_config(settings)), names.ingress, self._reporter.beat
        )
        self._recovery = Recovery(
            self._topic,
            self._policies,
            digest,
            settings.recovery.accept_loss_below,
            self._local.open,
            self._local.exists,
            self._with_bodies,
            self._local.open_register,
            self._read_halves,
        )
        self._ingress = Ingress(Consumer(consumer_config(settings, worker)), names.ingress)
        self._orphans = _orphan_watch(settings, worker, admin, self._topic.partitions)
        self._pipeline = Pipeline(
            self._ingress,
            self._publisher,
            clock,
            Pacing(_limits(settings), release_rate(settings.release)),
            metrics,
            self._note_first_commit,
        )

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Turn until stopped; then finish: hand over what is owned and leave the group."""
        self._pauses.load()
        self._release.pause(self._pauses.patterns)
        self._ingress.join(self)
        next_report = next_weighing = 0.0
        while not is_stopping():
            self._pipeline.turn()
            self._desk.answer_one(lambda: self._pipeline.shards)
            if self._is_lost:
                raise SessionLost("the group has given this member's partitions away")
            now = time.monotonic()
            if now >= next_report:
                next_report = now + REPORT_EVERY_S
                self._follow_pauses()
                self._reporter.report(self._pipeline, self._ingress, self._release.paused)
                self._orphans.look()
                self._retention.look(self._pipeline.shards)
                self._lookup.rest()
            if now >= next_weighing:
                next_weighing = now + WEIGH_EVERY_S
                self._metrics.weigh(
                    self._local.disk_bytes(self._pipeline.shards), self._local.disk()
                )
        self._ingress.close()
        self._lookup.close()
        self._pauses.close()

    def abandon(self) -> None:
        """Leave after an error: no transaction is attempted any more.

        The producer goes first: one that lives on would still send what it has in hand.
        """
        self._publisher.close()
        self._pipeline.abandon()
        self._ingress.close()
        self._lookup.close()
        self._pauses.close()

    def take_over(self, partitions: Sequence[int]) -> dict[int, int]:
        """Newly assigned partitions: recover their shards (ingress.Owner)."""
        shards = self._recovery.take_over(self._ingress, partitions)
        self._pipeline.adopt(shards)
        self._reporter.assigned()
        return {partition: shard.next_offset for partition, shard in shards.items()}

    def hand_over(self, partitions: Sequence[int]) -> None:
        """Another worker gets these: commit how far they were read, and write local state."""
        self._pipeline.hand_over(partitions)

    def lose(self, partitions: Sequence[int]) -> None:
        """These are gone: what is committed is true, nothing more may be committed.

        The session ends with them: after a broker was away its producer may be stuck
        (`proxy.publishing.errors.ClientStuck`).
        """
        self._pipeline.lose(partitions)
        self._is_lost = True

    def _follow_pauses(self) -> None:
        if self._pauses.look():
            self._release.pause(self._pauses.patterns)
            log.info("paused targets", patterns=sorted(self._pauses.patterns))

    def _with_bodies(self, partition: int, store: Store, judge: Judge) -> Store:
        if not self._local.has_stubs(partition):
            return store
        read_back = partial(self._lookup.read, partition)
        return FetchedBodies(store, read_back, judge, puts_stubs=self._puts_stubs)

    def _read_halves(self, partition: int, offsets: Sequence[int]) -> Mapping[int, Message]:
        return self._lookup.read(partition, offsets, HALF_REACH)

    def _note_first_commit(self, partition: int, policies: Sequence[PolicyFrom]) -> None:
        self._policies.mark_served(self._topic, partition, policies)


def _targets(settings: Settings, admin: AdminClient) -> Targets:
    create = NamedByProxy(admin, settings.topics).create
    return Targets(admin, create, is_compressing=is_compressing(settings))


def _limits(settings: Settings) -> TransactionLimits:
    asked = settings.release
    return TransactionLimits(asked.transaction_records, asked.transaction_interval_ms)


def _pauses(settings: Settings, beat: Callable[[], None]) -> Pauses:
    group_id = settings.group_id
    consumer = Consumer(pauses_config(common_config(settings), group_id))
    return Pauses(consumer, settings.topics.settings, group_id, beat)


def _orphan_watch(
    settings: Settings, worker: int, admin: AdminClient, partitions: int
) -> OrphanWatch:
    group_id, ingress = settings.group_id, settings.topics.ingress
    return OrphanWatch(
        admin,
        group_id,
        {(ingress, number) for number in range(partitions)},
        f"{settings.instance_name}-{worker}",
        partial(visit_group, common_config(settings), group_id, ingress),
    )
