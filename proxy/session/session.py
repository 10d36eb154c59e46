"""One session with the broker: a consumer, a transactional producer, and their shards.

If the result of a transaction is unknown, the whole session ends. The next session recovers the
shards from the broker (docs/exactly-once.md#6-commits-of-unknown-outcome).
"""

import ctypes
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from proxy.admin.queries import QueryMailbox
from proxy.clock import Clock
from proxy.config.machine import DiskReserve
from proxy.config.policy_from_settings import aging_after_ms, policy_of, refuse_unfit
from proxy.config.settings import Settings
from proxy.dispatch.dispatcher import OutgoingRecords
from proxy.dispatch.paused_records import PausedRecords
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import (
    ReleaseControl,
    WorkerRateLimit,
    overdue_rules_json,
    release_control,
)
from proxy.kafka.broker_clock import BrokerClock, clock_producer_config
from proxy.kafka.client_settings import (
    admin_config,
    common_config,
    connected,
    consumer_config,
    is_compressing,
    listener_config,
    lookup_config,
    producer_config,
    session_timeout_ms,
    transaction_timeout_ms,
)
from proxy.kafka.group import (
    GroupOwners,
    OwnersUnknown,
    Place,
    StaticMember,
    UnassignedPartitions,
    ask_in_thread,
    force_rebalance,
    group_members,
)
from proxy.kafka.ingress import Ingress
from proxy.kafka.log_ranges import RetentionWatch
from proxy.kafka.reader import IngressLookup
from proxy.kafka.settings_topic import SettingsTopic, open_settings_topic
from proxy.kafka.topics import (
    DerivedTopics,
    TopicFacts,
    TopicWatch,
    describe_topic,
    ingress_config,
    retention_ms,
)
from proxy.protocol.body import BODY_FORMAT
from proxy.protocol.policy import Policy
from proxy.protocol.proofs import HopAuthenticator
from proxy.publishing.failures import SessionLost
from proxy.publishing.kafka_transactions import CommitThread, KafkaTransactions
from proxy.publishing.targets import Targets
from proxy.publishing.throttling import Throttling
from proxy.publishing.transaction import Publisher
from proxy.recovery.local_state import LocalState, warn_of_few_open_files
from proxy.recovery.recovery import Recovery
from proxy.session.clock_watch import ClockWatch
from proxy.session.limits import BackPressure, MemoryBudget
from proxy.session.pacing import Pacing
from proxy.session.pending_limits import PendingLimits
from proxy.session.pipeline import Pipeline, TraceCommitted
from proxy.session.reporter import AdminSide, Reporter
from proxy.telemetry.metrics import Metrics
from storage.options import Options

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KafkaClients:
    """A session's access to Kafka. `settings_topic` is loaded.

    `new_producer` takes the number of a transactional id. `new_listener` makes a consumer that
    waits for new records while the group's consumer is paused. `new_reader` makes a consumer that
    reads single records again. `new_commits` makes an executor that waits for one producer's
    commits.
    """

    topic: TopicFacts
    settings_topic: SettingsTopic
    admin: AdminClient
    new_producer: Callable[[int], Producer]
    new_consumer: Callable[[], Consumer]
    new_listener: Callable[[], Consumer]
    new_reader: Callable[[], Consumer]
    new_commits: Callable[[], Executor]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one session. The previous session's producer is fenced."""

    settings_topic: SettingsTopic
    ingress: Ingress
    lookup: IngressLookup
    publisher: Publisher
    release: ReleaseControl
    rate: WorkerRateLimit
    pipeline: Pipeline


CALM_FOR_S: Final = 4.0
FEW_RECORDS: Final = 1_000
"""More records than this within CALM_FOR_S would soon need the freed memory again."""
TRIMS: Final = 8
"""Trims stop after this many calm looks in a row, because the memtables are on disk by then."""


def _trim() -> None:
    """Return freed memory to the system. Only glibc keeps much freed memory."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class FreedMemory:
    """Gives freed memory back to the system in calm times. A trim takes about 10 ms."""

    def __init__(self, trim: Callable[[], None] = _trim) -> None:
        self._trim = trim
        self._next_look_s = 0.0
        self._read_to = self._calm_looks = 0

    def look(self, now_s: float, read_to: int, *, is_busy: bool) -> None:
        """Trim if few records were read and delivered. `read_to` is the sum of the shards' next
        offsets."""
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + CALM_FOR_S
        is_calm = not is_busy and read_to - self._read_to < FEW_RECORDS
        self._calm_looks = self._calm_looks + 1 if is_calm else 0
        self._read_to = read_to
        if 0 < self._calm_looks <= TRIMS:
            self._trim()


LOOK_EVERY_S: Final = 0.25
LATEST_LOOK_S: Final = 0.75
PAUSE_PER_LOOK: Final = 10
"""The pause after a look, as a multiple of the look's duration. A look at a thousand shards takes
tens of milliseconds."""


READ_SOON: Final = 500_000
"""Another instance reads this many records of the ingress about as fast as a process restarts."""
HEIRS_KNOWN_WITHIN_S: Final = 1.0


@dataclass
class Session:
    """A member of the group that turns the pipeline until told to stop, or until an error."""

    parts: Parts
    mailbox: QueryMailbox
    reporter: Reporter
    unassigned: UnassignedPartitions
    clock_watch: ClockWatch
    ingress_topic: TopicWatch
    ask_group: Callable[[], Future[GroupOwners]]
    instance: str
    joined: Callable[[str], None] | None = None
    """Called with this session's member id in the group."""
    _freed_memory: FreedMemory = field(default_factory=FreedMemory)
    _next_look_s: float = 0.0

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Join, turn until stopped, then leave. After an error commit nothing more. Closing the
        consumer hands the shards over, so the producer must be open until then."""
        try:
            self._join()
            while not is_stopping():
                self._turn()
            self._leave()
            for close in self._closings:
                close()
        except BaseException:
            self._drop()
            raise

    def _join(self) -> None:
        """Join the group. Pauses and the broker's time must be known before the first turn."""
        self.clock_watch.begin()
        self.parts.settings_topic.catch_up()
        self._apply_controls()
        self.parts.ingress.join(_Owner(self.parts.pipeline), self.joined)

    def _turn(self) -> None:
        pipeline = self.parts.pipeline
        pipeline.turn()
        timed = pipeline.steps.timed
        if not self.mailbox.is_empty:
            timed("answer", self._answer)
        if pipeline.is_lost:
            raise SessionLost("the group has assigned this member's partitions to another member")
        if (began_s := time.monotonic()) >= self._next_look_s:
            timed("look", self._look_around)
            took_s = time.monotonic() - began_s
            pause_s = max(LOOK_EVERY_S, took_s * PAUSE_PER_LOOK)
            self._next_look_s = began_s + min(pause_s, LATEST_LOOK_S)

    def _leave(self) -> None:
        """Leave the group if another instance can take over soon. Otherwise let Kafka keep this
        instance's place, because a restart is faster than a takeover by another instance."""
        positions = [shard.position for shard in self.parts.pipeline.shards.values()]
        to_read = sum(position.next_offset - position.floor for position in positions)
        if to_read <= READ_SOON and self._has_heirs():
            log.info("leaves the group, others take over", records_to_read=to_read)
            self.parts.ingress.leave()
        else:
            log.info("ends, its place in the group is kept for a restart", records_to_read=to_read)

    def _has_heirs(self) -> bool:
        """Return whether other instances are in the group. Return True if no answer comes in time.
        Deliver until the answer comes."""
        asked, until_s = self.ask_group(), time.monotonic() + HEIRS_KNOWN_WITHIN_S
        while not asked.done():
            if time.monotonic() > until_s:
                return True
            self._turn()
        try:
            return asked.result().has_others(self.instance)
        except OwnersUnknown:
            return True

    def _answer(self) -> None:
        pipeline = self.parts.pipeline
        self.mailbox.answer_one(lambda: pipeline.shards, is_busy=pipeline.is_busy)

    @property
    def _closings(self) -> tuple[Callable[[], None], ...]:
        parts = self.parts
        closing = parts.ingress, parts.lookup, parts.settings_topic, self.clock_watch
        return tuple(part.close for part in closing)

    def _drop(self) -> None:
        """Close everything after an error, even if a close fails. Close the producer first, because
        it would still send its queued records."""
        with ExitStack() as last_first:
            for close in reversed(self._closings):
                last_first.callback(close)
            last_first.callback(self.parts.pipeline.abandon)
            last_first.callback(self.parts.publisher.kafka.close)

    def _look_around(self) -> None:
        pipeline = self.parts.pipeline
        if self.ingress_topic.is_another():
            raise SessionLost("the ingress topic was deleted and created again")
        if self.parts.settings_topic.look():
            self._apply_controls()
        self.clock_watch.look()
        self.reporter.report()
        self.unassigned.look()
        self.parts.lookup.stop_if_idle()
        read_to = sum(shard.next_offset for shard in pipeline.shards.values())
        self._freed_memory.look(time.monotonic(), read_to, is_busy=pipeline.is_busy)

    def _apply_controls(self) -> None:
        wanted, release = self.parts.settings_topic.controls, self.parts.release
        pipeline = self.parts.pipeline
        before = self._set_at_run_time()
        release.pause(wanted.paused, wanted.resumed)
        release.limit(wanted.limits)
        self.parts.rate.set(wanted.max_per_second)
        if before != (now := self._set_at_run_time()):
            log.info("set at run time", **now)
        if wanted.is_ingest_paused == pipeline.back_pressure.is_ingest_paused:
            return
        pipeline.pause_ingest(wanted.is_ingest_paused)
        if wanted.is_ingest_paused:
            log.warning(
                "the ingest is paused by an operator: no records are read from the ingress, and "
                "no cancels, purges or rewritten records. Pending records are delivered",
                resume="kafka-delay-proxy resume --ingest",
            )
        else:
            log.info("the ingest is resumed")

    def _set_at_run_time(self) -> Mapping[str, object]:
        release = self.parts.release
        return {
            "paused": sorted(release.paused),
            "release_rates": release.release_rates,
            "limits": {name: one.model_dump() for name, one in release.limits.items()},
            "max_per_second": self.parts.rate.set_at_run_time,
        }


class _Owner:
    """Passes calls to the pipeline. Once partitions are lost, no others are taken over."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.hand_over, self.lose = pipeline.hand_over, pipeline.lose

    def take_over(self, partitions: list[int]) -> dict[int, int]:
        """Take over partitions, but none in a session that ends. If an evicted member rejoins
        within one fetch, its consumer waits for committed offsets in vain (librdkafka 2.16)."""
        return {} if self._pipeline.is_lost else self._pipeline.take_over(partitions)


def assemble(
    kafka: KafkaClients,
    settings: Settings,
    policy: Policy,
    release: ReleaseControl,
    rate: WorkerRateLimit,
    folders: LocalState,
    clock: Clock,
    metrics: Metrics,
    heartbeat: Callable[[], None],
    now_s: Callable[[], float] = time.monotonic,
    trace: TraceCommitted | None = None,
    *,
    refusals: Refusals,
    throttling: Throttling,
) -> Parts:
    """Connect the parts of a session. `heartbeat` is called during waits for the broker, `trace`
    after commits. Policy and overdue rules are written before anything refers to them.

    The producer is made before the consumer, because the new producer ends its predecessor's
    transaction. Until then that transaction could change the committed offsets.
    """
    topic, asked = kafka.topic, settings.release
    policy = replace(policy, hop_key=kafka.settings_topic.signing_key().digest)
    digest = kafka.settings_topic.ensure(policy)
    kafka.settings_topic.ensure_overdue_rules(overdue_rules_json(asked))
    publisher = _publisher(kafka, settings, policy, release, clock, heartbeat, refusals, throttling)
    skipped = kafka.settings_topic.skipped(topic.topic_id)
    ingress = Ingress(kafka.new_consumer(), topic.name, kafka.new_listener, now_s, skipped)
    lookup = IngressLookup(kafka.new_reader, topic.name, heartbeat, now_s, skipped)
    recovery = Recovery(
        topic,
        settings,
        kafka.admin,
        kafka.settings_topic,
        ingress,
        lookup,
        folders,
        digest,
        clock,
        metrics.intake.count,
        now_s,
    )
    reserve, limits = DiskReserve(settings.disk_reserve_bytes), PendingLimits(settings.admission)
    pipeline = Pipeline(
        ingress,
        recovery,
        publisher,
        clock,
        Pacing(asked, rate, throttling),
        MemoryBudget(settings.memory_shares),
        metrics,
        BackPressure(ingress, reserve, folders.disk_size_and_free_bytes, limits),
        PausedRecords(release, topic.partitions),
        trace,
    )
    return Parts(kafka.settings_topic, ingress, lookup, publisher, release, rate, pipeline)


def _publisher(
    kafka: KafkaClients,
    settings: Settings,
    policy: Policy,
    release: ReleaseControl,
    clock: Clock,
    heartbeat: Callable[[], None],
    refusals: Refusals,
    throttling: Throttling,
) -> Publisher:
    authenticator = HopAuthenticator(kafka.settings_topic.signing_key(), kafka.topic.topic_id)
    create = DerivedTopics(kafka.admin, settings).create
    transactions = KafkaTransactions(
        kafka.new_producer,
        kafka.new_commits,
        heartbeat,
        transaction_timeout_ms(settings) / 1_000,
        throttling,
        clock.record_time_ms,
    )
    return Publisher(
        transactions,
        Targets(kafka.admin, create, is_compressing=is_compressing(settings)),
        OutgoingRecords(settings.topics.dead_letters, settings.topics.outcomes, authenticator),
        policy.retry_of(""),
        release,
        refusals,
    )


def open_session(
    settings: Settings,
    worker: int,
    clock: Clock,
    side: AdminSide,
    trace: TraceCommitted | None,
    refusals: Refusals,
    throttling: Throttling,
) -> Session:
    """Return a session that is ready to run. Raises SettingsError if the retention of the ingress
    is too short, InstanceConflict if another process of the same name is alive."""
    group_id, ingress = settings.group_id, settings.topics.ingress
    heartbeat, metrics = side.board.heartbeat, side.metrics
    admin = AdminClient(admin_config(settings))
    members = partial(group_members, admin, group_id)
    member = StaticMember(settings.instance_name, worker, settings.data_dir, members)
    member.refuse_twin(session_timeout_ms(settings) / 1000, heartbeat)
    kafka = _kafka_clients(settings, worker, admin, heartbeat, throttling)
    config = ingress_config(ingress, admin)
    kept_ms = retention_ms(config)
    refuse_unfit(settings, config, kept_ms)
    policy = policy_of(settings, kept_ms)
    local = _local_state(settings, kafka.topic.topic_id)
    parts = assemble(
        kafka,
        settings,
        policy,
        release_control(settings.release),
        WorkerRateLimit(settings.release.max_per_second),
        local,
        clock,
        metrics,
        heartbeat,
        trace=trace,
        refusals=refusals,
        throttling=throttling,
    )
    metrics.show(memory_budget_bytes=settings.memory.per_worker_bytes)
    retention = RetentionWatch(admin, ingress, aging_after_ms(policy.roll_after_ms, kept_ms))
    reporter = Reporter(
        parts.pipeline, parts.ingress, parts.release, parts.rate, clock, side, retention, local
    )
    common = common_config(settings)
    ask_group = partial(ask_in_thread, common, group_id)
    unassigned = UnassignedPartitions(
        ask_group,
        _places(ingress, kafka.topic.partitions),
        partial(force_rebalance, common, group_id, ingress),
    )

    def on_growth(partitions: int) -> None:
        _note_partitions(metrics, partitions)
        unassigned.watch(_places(ingress, partitions))
        parts.pipeline.share_rates_among(partitions)

    _note_partitions(metrics, kafka.topic.partitions)
    topic = TopicWatch(admin, kafka.topic, on_growth)
    watch = _clock_watch(settings, clock, heartbeat)
    name, joined = settings.instance_name, member.joined
    return Session(parts, side.mailbox, reporter, unassigned, watch, topic, ask_group, name, joined)


def _note_partitions(metrics: Metrics, partitions: int) -> None:
    metrics.show(ingress_partitions=partitions)
    warn_of_few_open_files(partitions)


def _places(topic: str, partitions: int) -> set[Place]:
    return {(topic, number) for number in range(partitions)}


def _clock_watch(settings: Settings, clock: Clock, heartbeat: Callable[[], None]) -> ClockWatch:
    topic, config = settings.topics.settings, clock_producer_config(settings)
    broker = BrokerClock(lambda: connected(Producer(config), topic), topic, settings.group_id)
    return ClockWatch(broker, clock, topic, heartbeat)


def _kafka_clients(
    settings: Settings,
    worker: int,
    admin: AdminClient,
    heartbeat: Callable[[], None],
    throttling: Throttling,
) -> KafkaClients:
    ingress = settings.topics.ingress
    reading = {"throttle_cb": throttling.read}

    def new_producer(number: int) -> Producer:
        config = producer_config(settings, worker, number)
        return connected(Producer(config | {"throttle_cb": throttling.written}), ingress)

    try:
        topic = describe_topic(ingress, admin, settings)
    finally:
        admin.poll(0)  # writes the client's log, which names the cause if no broker answers
    return KafkaClients(
        topic,
        open_settings_topic(settings, heartbeat, admin),
        admin,
        new_producer,
        lambda: Consumer(consumer_config(settings, worker) | reading),
        lambda: Consumer(listener_config(settings) | reading),
        lambda: Consumer(lookup_config(settings) | reading),
        CommitThread,
    )


def _local_state(settings: Settings, topic_id: str) -> LocalState:
    wheel = settings.wheel
    return LocalState(
        settings.data_dir,
        settings.topics.ingress,
        topic_id,
        Options(precision_ms=wheel.precision_ms, slots=wheel.slots, body_format=BODY_FORMAT),
        settings.store,
        stores_stubs=settings.bodies == "kafka",
    )
