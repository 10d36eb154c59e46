"""Wiring of a session's parts, for the running proxy and for tests with a Kafka of their own."""

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from proxy.clock import Clock
from proxy.config.machine import DiskReserve
from proxy.config.settings import Settings
from proxy.dispatch.parked_records import ParkedRecords
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import ReleaseControl, WorkerRateLimit, overdue_rules_json
from proxy.kafka.client_settings import is_compressing, transaction_timeout_ms
from proxy.kafka.ingress import Ingress
from proxy.kafka.reader import IngressLookup
from proxy.kafka.settings_topic import SettingsTopic
from proxy.kafka.topics import DerivedTopics, TopicFacts
from proxy.protocol.policy import Policy, RetryGroup
from proxy.protocol.proofs import HopAuthenticator
from proxy.publishing.targets import Targets
from proxy.publishing.throttling import Throttling
from proxy.publishing.transaction import Publisher
from proxy.recovery.local_state import LocalState
from proxy.recovery.recovery import Recovery
from proxy.session.limits import BackPressure, MemoryBudget, WaitingLimits
from proxy.session.pacing import Pacing
from proxy.session.pipeline import Pipeline, TraceCommitted
from proxy.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class KafkaClients:
    """A session's access to Kafka. `settings_topic` is loaded.

    `new_producer` takes the number of a transactional id. `new_listener` makes a consumer that
    waits in place of the group's member, `new_reader` one that reads single records again.
    `new_commits` makes an executor that waits for one producer's commits.
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
    """The parts of one session. Its producer has fenced its predecessor's."""

    settings_topic: SettingsTopic
    ingress: Ingress
    lookup: IngressLookup
    publisher: Publisher
    release: ReleaseControl
    rate: WorkerRateLimit
    pipeline: Pipeline


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
    """Wire a session. `heartbeat` is called during waits for the broker, `trace` after commits.
    Policy and overdue rules are written before anything refers to them. The producer comes before
    the consumer: it fences a predecessor and settles committed offsets."""
    topic, asked = kafka.topic, settings.release
    signing_key = kafka.settings_topic.signing_key()
    policy = replace(policy, hop_key=signing_key.digest)
    digest = kafka.settings_topic.ensure(policy)
    kafka.settings_topic.ensure_overdue_rules(overdue_rules_json(asked))
    authenticator = HopAuthenticator(signing_key, topic.topic_id)
    retry = policy.retry_of("")
    publisher = _publisher(
        kafka, settings, retry, release, authenticator, clock, heartbeat, refusals, throttling
    )
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
    pipeline = Pipeline(
        ingress,
        recovery,
        publisher,
        clock,
        Pacing(asked, rate, throttling),
        MemoryBudget(settings.memory_shares),
        metrics,
        _back_pressure(settings, ingress, folders),
        ParkedRecords(release, topic.partitions),
        trace,
    )
    return Parts(kafka.settings_topic, ingress, lookup, publisher, release, rate, pipeline)


def _back_pressure(settings: Settings, ingress: Ingress, folders: LocalState) -> BackPressure:
    reserve = DiskReserve(settings.disk_reserve_bytes)
    limits = WaitingLimits(settings.admission)
    return BackPressure(ingress, reserve, folders.disk_size_and_free_bytes, limits)


def _publisher(
    kafka: KafkaClients,
    settings: Settings,
    retry: RetryGroup,
    release: ReleaseControl,
    authenticator: HopAuthenticator,
    clock: Clock,
    heartbeat: Callable[[], None],
    refusals: Refusals,
    throttling: Throttling,
) -> Publisher:
    create = DerivedTopics(kafka.admin, settings).create
    return Publisher(
        kafka.new_producer,
        Targets(kafka.admin, create, is_compressing=is_compressing(settings)),
        settings.topics.dead_letters,
        settings.topics.outcomes,
        heartbeat,
        kafka.new_commits,
        retry,
        release,
        authenticator,
        clock.stamp_ms,
        transaction_timeout_ms(settings) / 1_000,
        refusals,
        throttling,
    )
