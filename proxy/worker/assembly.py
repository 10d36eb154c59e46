"""Wires a session's parts: for the running proxy, and for tests on a Kafka of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from proxy.clock import Clock
from proxy.config.settings import Settings, TopicSettings
from proxy.kafka.client_settings import is_compressing
from proxy.kafka.derived_topics import DerivedTopics
from proxy.kafka.ingress import Ingress
from proxy.kafka.ingress_lookup import IngressLookup
from proxy.kafka.topics import TopicFacts
from proxy.publishing.publisher import Publisher
from proxy.publishing.release_control import (
    RateCap,
    ReleaseControl,
    Unlimited,
    release_control,
    release_rate,
)
from proxy.publishing.targets import Targets
from proxy.recovery.recovery import LocalFolders, Policies, Recovery
from proxy.requests.policy import Policy
from proxy.telemetry.metrics import Metrics
from proxy.worker.pipeline import Limits, Pipeline
from proxy.worker.shard_owner import ShardOwner


class SettingsPort(Policies, Protocol):
    """What a session asks of `proxy.kafka.settings_topic.SettingsTopic`, once it is loaded."""

    @property
    def paused(self) -> frozenset[str]: ...
    def ensure(self, policy: Policy) -> str: ...
    def look(self) -> bool: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class KafkaSide:
    """What a session has of Kafka, with clients that are made when it is their turn.

    `new_consumer` makes the member of the group, `new_reader` a consumer that reads single records
    again, `new_producer` the transactional producer. `commits` is where commits are waited for.
    """

    topic: TopicFacts
    settings_topic: SettingsPort
    admin: AdminClient
    new_producer: Callable[[], Producer]
    new_consumer: Callable[[], Consumer]
    new_reader: Callable[[], Consumer]
    commits: Executor


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say of a session's work; `policy` is how they judge new records."""

    policy: Policy
    names: TopicSettings
    limits: Limits
    release: ReleaseControl
    cap: RateCap | Unlimited
    accept_loss_below: Mapping[int, int]
    stores_stubs: bool
    is_compressing: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one session. Its producer has fenced its predecessor's."""

    settings_topic: SettingsPort
    ingress: Ingress
    lookup: IngressLookup
    publisher: Publisher
    release: ReleaseControl
    pipeline: Pipeline
    owner: ShardOwner


def rules_of(settings: Settings, policy: Policy) -> Rules:
    """The rules of a proxy with these settings."""
    asked = settings.release
    return Rules(
        policy,
        settings.topics,
        Limits(asked.transaction_records, asked.transaction_interval_ms),
        release_control(asked),
        release_rate(asked),
        settings.recovery.accept_loss_below,
        stores_stubs=settings.bodies == "kafka",
        is_compressing=is_compressing(settings),
    )


def assemble(
    kafka: KafkaSide,
    rules: Rules,
    folders: LocalFolders,
    clock: Clock,
    metrics: Metrics,
    heartbeat: Callable[[], None],
    now_s: Callable[[], float] = time.monotonic,
) -> Parts:
    """Wire a session. `heartbeat` is called while the broker is waited for.

    The policy is written before any offset refers to it; the producer comes before the consumer,
    since its initialisation fences a predecessor and so settles the committed offsets.
    """
    digest = kafka.settings_topic.ensure(rules.policy)
    publisher = _publisher(kafka, rules, heartbeat)
    ingress = Ingress(kafka.new_consumer(), kafka.topic.name)
    lookup = IngressLookup(kafka.new_reader, kafka.topic.name, heartbeat, now_s)
    recovery = Recovery(
        kafka.topic,
        ingress,
        lookup,
        kafka.settings_topic,
        folders,
        digest,
        rules.accept_loss_below,
        stores_stubs=rules.stores_stubs,
        now_s=now_s,
    )
    pipeline = Pipeline(
        ingress,
        publisher,
        clock,
        rules.limits,
        metrics,
        partial(kafka.settings_topic.record_served, kafka.topic),
        rules.cap,
    )
    owner = ShardOwner(recovery, pipeline)
    return Parts(kafka.settings_topic, ingress, lookup, publisher, rules.release, pipeline, owner)


def _publisher(kafka: KafkaSide, rules: Rules, heartbeat: Callable[[], None]) -> Publisher:
    return Publisher(
        kafka.new_producer(),
        Targets(kafka.admin, DerivedTopics(kafka.admin, rules.names).create),
        rules.names.dead_letters,
        rules.names.outcomes,
        heartbeat,
        kafka.commits,
        rules.policy.retry_of(""),
        rules.release,
        is_compressing=rules.is_compressing,
    )
