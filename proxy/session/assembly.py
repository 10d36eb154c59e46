"""Wires a session's parts: for the running proxy, and for tests on a Kafka of their own."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from proxy.clock import Clock
from proxy.config.machine import DiskReserve
from proxy.config.settings import Settings
from proxy.config.target_limit import Resumed, TargetLimit
from proxy.dispatch.parked_records import ParkedRecords
from proxy.dispatch.rate_limit import WorkerRateLimit
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import ReleaseControl, overdue_rules_json
from proxy.kafka.client_settings import is_compressing, transaction_timeout_s
from proxy.kafka.ingress.ingress import Ingress
from proxy.kafka.ingress.ingress_lookup import IngressLookup
from proxy.kafka.ingress.unreadable import SkippedRanges
from proxy.kafka.log_ranges import log_ranges
from proxy.kafka.topics import DerivedTopics, TopicFacts
from proxy.protocol.policy import Policy, RetryGroup
from proxy.protocol.proofs import HopAuthenticator, HopKey
from proxy.publishing.targets import Targets
from proxy.publishing.throttling import Throttling
from proxy.publishing.transaction import Publisher
from proxy.recovery.recovery import LocalFolders, Policies, Recovery
from proxy.scheduling.identities import missed_place
from proxy.session.limits import BackPressure, MemoryBudget, WaitingLimits
from proxy.session.pacing import Pacing
from proxy.session.pipeline import Pipeline, TraceCommitted
from proxy.telemetry.metrics import Metrics


class SettingsPort(Policies, Protocol):
    """What a session asks of the settings topic (`proxy.kafka.settings`), once it is loaded."""

    @property
    def paused(self) -> frozenset[str]: ...
    @property
    def resumed(self) -> Mapping[str, Resumed]: ...
    @property
    def limits(self) -> Mapping[str, TargetLimit]: ...
    @property
    def max_per_second(self) -> int | None: ...
    @property
    def is_ingest_paused(self) -> bool: ...
    def ensure(self, policy: Policy) -> str: ...
    def ensure_overdue_rules(self, rules: str) -> None: ...
    def signing_key(self) -> HopKey: ...
    def skipped(self, topic_id: str) -> SkippedRanges: ...
    def look(self) -> bool: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class KafkaClients:
    """What a session has of Kafka, with clients that are made when it is their turn.

    `new_consumer` makes the member of the group, `new_reader` a consumer that reads single records
    again, `new_listener` one that waits for the next record in the member's place, `new_producer` a
    transactional producer, by the number of its transactional id. `new_commits` makes that where
    the commits of one producer are waited for.
    """

    topic: TopicFacts
    settings_topic: SettingsPort
    admin: AdminClient
    new_producer: Callable[[int], Producer]
    new_consumer: Callable[[], Consumer]
    new_listener: Callable[[], Consumer]
    new_reader: Callable[[], Consumer]
    new_commits: Callable[[], Executor]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one session. Its producer has fenced its predecessor's."""

    settings_topic: SettingsPort
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
    folders: LocalFolders,
    clock: Clock,
    metrics: Metrics,
    heartbeat: Callable[[], None],
    now_s: Callable[[], float] = time.monotonic,
    trace: TraceCommitted | None = None,
    refusals: Refusals | None = None,
    throttling: Throttling | None = None,
) -> Parts:
    """Wire a session. `heartbeat` is called while the broker is waited for, `trace` after commits.
    `refusals` and `throttling` outlive the session.

    The policy is written before any offset refers to it, rules for the overdue before any record
    ends by them; the producer comes before the consumer, since its initialisation fences a
    predecessor and so settles the committed offsets.
    """
    topic, asked = kafka.topic, settings.release
    signing_key = kafka.settings_topic.signing_key()
    policy = replace(policy, hop_key=signing_key.digest)
    digest = kafka.settings_topic.ensure(policy)
    kafka.settings_topic.ensure_overdue_rules(overdue_rules_json(asked))
    authenticator = HopAuthenticator(signing_key, topic.topic_id)
    retry = policy.retry_of("")
    throttling = throttling or Throttling()
    publisher = _publisher(
        kafka, settings, retry, release, authenticator, clock, heartbeat, refusals, throttling
    )
    skipped = kafka.settings_topic.skipped(topic.topic_id)
    ingress = Ingress(kafka.new_consumer(), topic.name, kafka.new_listener, now_s, skipped)
    lookup = IngressLookup(kafka.new_reader, topic.name, heartbeat, now_s, skipped)
    recovery = _recovery(kafka, settings, ingress, lookup, folders, digest, clock, metrics, now_s)
    pipeline = Pipeline(
        ingress,
        recovery,
        publisher,
        clock,
        Pacing(asked, rate, throttling),
        MemoryBudget(settings.memory_shares),
        metrics,
        recovery.record_first_commit,
        _back_pressure(settings, ingress, folders),
        ParkedRecords(release, topic.partitions),
        trace,
    )
    return Parts(kafka.settings_topic, ingress, lookup, publisher, release, rate, pipeline)


def _recovery(
    kafka: KafkaClients,
    settings: Settings,
    ingress: Ingress,
    lookup: IngressLookup,
    folders: LocalFolders,
    digest: str,
    clock: Clock,
    metrics: Metrics,
    now_s: Callable[[], float],
) -> Recovery:
    topic = kafka.topic
    missed = settings.topics.settings, settings.group_id, topic.name, topic.topic_id
    return Recovery(
        topic,
        ingress,
        partial(log_ranges, kafka.admin, topic.name),
        lookup,
        kafka.settings_topic,
        folders,
        digest,
        settings.recovery,
        clock,
        partial(missed_place, *missed),
        metrics.intake.count,
        stores_stubs=settings.bodies == "kafka",
        now_s=now_s,
    )


def _back_pressure(settings: Settings, ingress: Ingress, folders: LocalFolders) -> BackPressure:
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
    refusals: Refusals | None,
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
        transaction_timeout_s(settings),
        refusals or Refusals(),
        throttling,
    )
