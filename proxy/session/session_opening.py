"""Opens a session on the broker that the settings name."""

from functools import partial

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from proxy.clock import Clock
from proxy.config.ingress_retention import aging_after_ms, refuse_unfit
from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.dispatch.rate_limit import WorkerRateLimit
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import release_control
from proxy.kafka.broker_clock import BrokerClock, clock_producer_config
from proxy.kafka.client_settings import (
    admin_config,
    common_config,
    connected,
    consumer_config,
    listener_config,
    lookup_config,
    producer_config,
    session_timeout_ms,
)
from proxy.kafka.group import (
    Place,
    StaticMember,
    UnassignedPartitions,
    ask_in_thread,
    asking,
    force_rebalance,
)
from proxy.kafka.retention_watch import RetentionWatch
from proxy.kafka.settings.settings_topic import open_settings_topic
from proxy.kafka.topics import TopicWatch, describe_topic, ingress_config, retention_ms
from proxy.protocol.body import BODY_FORMAT
from proxy.publishing.kafka_transactions import CommitThread
from proxy.publishing.throttling import Throttling
from proxy.recovery.local_state import LocalState, say_if_too_few
from proxy.session.admin_side import AdminSide
from proxy.session.assembly import KafkaClients, assemble
from proxy.session.clock_watch import ClockWatch
from proxy.session.pipeline import TraceCommitted
from proxy.session.reporter import Reporter
from proxy.session.session import Session
from storage.options import Options


def open_session(
    settings: Settings,
    worker: int,
    clock: Clock,
    side: AdminSide,
    trace: TraceCommitted | None,
    refusals: Refusals,
    throttling: Throttling,
) -> Session:
    """A session ready to run. Raises SettingsError when the ingress keeps records too shortly,
    InstanceConflict when another process of the same name is alive."""
    members = asking(common_config(settings), settings.group_id)
    member = StaticMember(settings.instance_name, worker, settings.data_dir, members)
    member.refuse_twin(session_timeout_ms(settings) / 1000, side.board.heartbeat)
    admin = AdminClient(admin_config(settings))
    kafka = _kafka_clients(settings, worker, admin, side, throttling)
    config = ingress_config(kafka.topic.name, admin)
    kept_ms = retention_ms(config)
    refuse_unfit(settings, config, kept_ms)
    policy = policy_of(settings, kept_ms)
    folders = _local_state(settings, kafka.topic.topic_id)
    parts = assemble(
        kafka,
        settings,
        policy,
        release_control(settings.release),
        WorkerRateLimit(settings.release.max_per_second),
        folders,
        clock,
        side.metrics,
        side.board.heartbeat,
        trace=trace,
        refusals=refusals,
        throttling=throttling,
    )
    side.metrics.ingress_partitions.set(kafka.topic.partitions)
    say_if_too_few(kafka.topic.partitions)
    side.metrics.memory_budget_bytes.set(settings.memory.per_worker_bytes)
    age_ms = aging_after_ms(policy.roll_after_ms, kept_ms)
    retention = RetentionWatch(admin, kafka.topic.name, age_ms)
    reporter = Reporter(parts, clock, side, retention, folders)
    unassigned = _unassigned_partitions(settings, kafka.topic.partitions)
    watch = _clock_watch(settings, clock, side)

    def on_growth(partitions: int) -> None:
        side.metrics.ingress_partitions.set(partitions)
        say_if_too_few(partitions)
        unassigned.watch(_places(settings, partitions))
        parts.pipeline.share_rates_among(partitions)

    topic = TopicWatch(admin, kafka.topic, on_growth)
    return Session(parts, side.mailbox, reporter, unassigned, watch, topic, member.joined)


def _clock_watch(settings: Settings, clock: Clock, side: AdminSide) -> ClockWatch:
    topic = settings.topics.settings

    def new_producer() -> Producer:
        return connected(Producer(clock_producer_config(settings)), topic)

    broker = BrokerClock(new_producer, topic, settings.group_id)
    return ClockWatch(broker, clock, topic, side.board.heartbeat)


def _kafka_clients(
    settings: Settings, worker: int, admin: AdminClient, side: AdminSide, throttling: Throttling
) -> KafkaClients:
    ingress = settings.topics.ingress
    writing, reading = {"throttle_cb": throttling.written}, {"throttle_cb": throttling.read}

    def new_producer(number: int) -> Producer:
        config = producer_config(settings, worker, number) | writing
        return connected(Producer(config), ingress)

    return KafkaClients(
        describe_topic(ingress, admin, settings),
        open_settings_topic(settings, side.board.heartbeat),
        admin,
        new_producer,
        lambda: Consumer(consumer_config(settings, worker) | reading),
        lambda: Consumer(listener_config(settings) | reading),
        lambda: Consumer(lookup_config(settings) | reading),
        CommitThread,
    )


def _local_state(settings: Settings, topic_id: str) -> LocalState:
    return LocalState(
        settings.data_dir,
        settings.topics.ingress,
        topic_id,
        Options(
            precision_ms=settings.wheel.precision_ms,
            slots=settings.wheel.slots,
            body_format=BODY_FORMAT,
        ),
        settings.store,
        stores_stubs=settings.bodies == "kafka",
    )


def _unassigned_partitions(settings: Settings, partitions: int) -> UnassignedPartitions:
    group_id, ingress = settings.group_id, settings.topics.ingress
    return UnassignedPartitions(
        partial(ask_in_thread, common_config(settings), group_id),
        _places(settings, partitions),
        partial(force_rebalance, common_config(settings), group_id, ingress),
    )


def _places(settings: Settings, partitions: int) -> set[Place]:
    return {(settings.topics.ingress, number) for number in range(partitions)}
