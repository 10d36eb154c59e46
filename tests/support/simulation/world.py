"""Whole proxy on the stand-in Kafka: real pipeline, recovery and publisher, with manual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, cast

from proxy.config.settings import (
    AdmissionSettings,
    MemorySettings,
    RecoverySettings,
    ReleaseSettings,
    Resumed,
    Settings,
    TargetLimit,
    TopicSettings,
)
from proxy.dispatch.hops import find_moving
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import ReleaseControl, WorkerRateLimit
from proxy.errors import StartOverRefused
from proxy.kafka.ingress import Ingress
from proxy.kafka.topics import TopicFacts
from proxy.kafka.unreadable import SkippedRanges
from proxy.protocol.body import Headers
from proxy.protocol.policy import Policy
from proxy.protocol.position import PolicyFrom, Position
from proxy.protocol.proofs import HopAuthenticator, HopKey
from proxy.publishing.failures import SessionLost
from proxy.publishing.throttling import Throttling
from proxy.scheduling.shard import Shard
from proxy.session.pipeline import Pipeline, TraceCommitted
from proxy.session.session import KafkaClients, Parts, assemble
from proxy.telemetry.metrics import Metrics
from storage.ids.register import Register
from storage.store import Store
from tests.support.oracle.committed_reader import Placed
from tests.support.oracle.ends import Ends
from tests.support.records import Incoming
from tests.support.simulation.executors import AtOnce
from tests.support.simulation.manual_clock import ManualTime
from tests.support.simulation.memory_register import MemoryRegister
from tests.support.simulation.memory_store import MemoryStore
from tests.support.simulation.stand_in import (
    INGRESS,
    Record,
    StandInConsumer,
    StandInKafka,
    StandInProducer,
    StandInReader,
)
from tests.support.simulation.stand_in_admin import StandInAdmin
from tests.support.simulation.stand_in_listener import StandInListener

DEAD_LETTERS = "timer.dead-letters"
OUTCOMES = "timer.outcomes"
DISK_BYTES = 1 << 40
SETTINGS = Settings(topics=TopicSettings(create=False))


class SettingsTopic:
    def __init__(self, kafka: StandInKafka) -> None:
        self._kafka = kafka
        self.paused: frozenset[str] = frozenset()
        self.resumed: dict[str, Resumed] = {}
        self.limits: dict[str, TargetLimit] = {}
        self.max_per_second: int | None = None
        self.is_ingest_paused = False
        self.has_changed = False
        """Whether the next look reports a change."""
        self._policies: dict[str, Policy] = {}
        self._served: dict[tuple[str, int], str] = {}
        self._signing_key = HopKey.new()
        self._skipped = SkippedRanges()

    @property
    def controls(self) -> SettingsTopic:
        return self

    def ensure(self, policy: Policy) -> str:
        self._policies[policy.digest] = policy
        return policy.digest

    def ensure_overdue_rules(self, rules: str) -> None:
        """Ignore rules, which only audits need."""

    def policy(self, digest: str) -> Policy:
        return self._policies[digest]

    def signing_key(self) -> HopKey:
        return self._signing_key

    def skipped(self, topic_id: str) -> SkippedRanges:
        return self._skipped

    def hop_key(self, digest: str) -> HopKey:
        assert digest == self._signing_key.digest
        return self._signing_key

    def read_missed(
        self, take: Callable[[str, bytes | None], None], is_all: Callable[[], bool]
    ) -> None:
        for record in self._kafka.read(SETTINGS.topics.settings):
            take((record.key() or b"").decode(), record.value())
        assert is_all(), "missed moves are missing"

    def served_topic_id(self, topic: str, partition: int) -> str | None:
        return self._served.get((topic, partition))

    def catch_up(self) -> None:
        """Do nothing: these settings are always up to date."""

    def look(self) -> bool:
        has_changed, self.has_changed = self.has_changed, False
        return has_changed

    def close(self) -> None:
        """Do nothing."""

    def record_served(
        self, topic: TopicFacts, policies: Mapping[int, Sequence[PolicyFrom]]
    ) -> None:
        self._served |= {(topic.name, partition): topic.topic_id for partition in policies}


class Folders:
    def __init__(self, world: World) -> None:
        self._world, self._holds_stubs = world, False

    def was_committed(self, partition: int) -> bool:
        return partition in self._world.marked_committed

    def mark_committed(self, partitions: Iterable[int]) -> None:
        self._world.marked_committed.update(partitions)

    def open(self, partition: int, position: Position) -> Store:
        return self._world.open_store(partition, position)

    def open_register(self, partition: int, at: Position, covered: int) -> Register:
        return self._world.open_register(partition, at, covered)

    def disk_size_and_free_bytes(self) -> tuple[int, int]:
        return DISK_BYTES, self._world.disk_free_bytes

    def has_stubs(self, partition: int) -> bool:
        self._holds_stubs |= self._world.bodies == "kafka"
        return self._holds_stubs


class World:
    """One proxy, one broker and one clock. `open_store` decides which state survives a crash. With
    `commits` a transaction is confirmed in the next turn, as in a real proxy, and the executor
    decides when it commits. Without `commits` each turn ends with a commit. `beside` is another
    proxy of the same group, broker and clock (`StandInKafka.wanted`)."""

    def __init__(
        self,
        partitions: int = 1,
        open_store: Callable[[int, Position], Store] | None = None,
        limit: int = 10_000,
        targets: tuple[str, ...] = ("orders",),
        commits: Executor | None = None,
        open_register: Callable[[int, Position, int], Register] | None = None,
        beside: World | None = None,
    ) -> None:
        if beside is None:
            self.time = ManualTime()
            self.kafka = StandInKafka(partitions, lambda: self.time.broker_now_ms)
            self.kafka.topics = dict.fromkeys(targets, 4)
            self.policies = SettingsTopic(self.kafka)
        else:
            self.time, self.kafka, self.policies = beside.time, beside.kafka, beside.policies
        self.member: int = 0 if beside is None else beside.member + 1
        self.policy = Policy(recalls_in=INGRESS)
        self.topic_id = "id-1"
        self.accept_loss_below: dict[int, int] = {}
        self.set_back_watermark: tuple[int, ...] = ()
        self.marked_committed: set[int] = set()
        self.machine = 0
        self.disk_free_bytes = DISK_BYTES
        self.max_step_ms = 5_000
        self.asks_broker_time = True
        self.batch_records = 1_000
        self.interval_ms = 0
        self.bodies = "local"
        self._folders = Folders(self)
        self.open_store = open_store or (lambda _p, _at: MemoryStore())
        self.open_register = open_register or (lambda _p, _at, _covered: MemoryRegister())
        self._limit = limit
        self._commits, self._confirms = commits or AtOnce(), commits is None
        self._parts: Parts | None = None
        self.clock = self.time.clock()
        self.metrics: Metrics = Metrics() if beside is None else beside.metrics
        self.trace: TraceCommitted | None = None
        self.release = ReleaseControl()
        self.refusals = Refusals()
        self.throttling = Throttling(now_s=lambda: self.time.monotonic_now_ms / 1_000)
        self.compresses = False
        self.cap: WorkerRateLimit = WorkerRateLimit()
        self.admission = AdmissionSettings()
        self.memory = MemorySettings()

    @property
    def pipeline(self) -> Pipeline:
        if self._parts is None:
            self._parts = self.assemble()
            self._parts.pipeline.pause_ingest(self.policies.is_ingest_paused)
            self._parts.ingress.join(self._parts.pipeline)
        return self._parts.pipeline

    @property
    def ingress(self) -> Ingress:
        assert self._parts is not None, "no proxy runs"
        return self._parts.ingress

    @property
    def shards(self) -> dict[int, Shard]:
        return self.pipeline.shards

    def send(
        self,
        headers: dict[str, str | bytes] | list[tuple[str, bytes | None]],
        key: bytes | None = b"key",
        value: bytes | None = b"value",
        partition: int = 0,
    ) -> Record:
        if isinstance(headers, dict):
            headers = [(n, v.encode() if isinstance(v, str) else v) for n, v in headers.items()]
        return self.kafka.append(INGRESS, partition, key, value, headers)

    def purge(
        self, targets: str, from_ms: int | None = None, to_ms: int | None = None, partition: int = 0
    ) -> Record:
        asked = {"timer-purge": targets, "timer-purge-from": from_ms, "timer-purge-to": to_ms}
        headers: Headers = [
            (name, str(value).encode()) for name, value in asked.items() if value is not None
        ]
        signer = HopAuthenticator(self.policies.signing_key(), self.topic_id)
        return self.send(signer.signed(partition, None, None, headers), None, None, partition)

    def moving(
        self, partition: int, offset: int, deliver_at_ms: int
    ) -> Callable[[], Record | None]:
        """Return a function that writes the admin API's move of a record. The function does nothing
        if the record is not pending now, or cannot be read."""
        shard, record = self.shards.get(partition), None
        for asked in self.kafka.read(INGRESS):
            is_it = (asked.partition(), asked.offset()) == (partition, offset)
            if is_it and shard is not None and offset < shard.next_offset:
                record = find_moving(shard, asked, deliver_at_ms).record
        if record is None or self.kafka.unreadable_base(partition, offset, offset + 1) is not None:
            return lambda: None
        signer = HopAuthenticator(self.policies.signing_key(), self.topic_id)
        key, value = record.key, record.value
        headers = signer.signed(partition, key, value, record.headers)
        return partial(self.send, headers, key, value, partition)

    def pause_ingest(self, is_paused: bool) -> None:
        """Pause or resume ingest, as an operator does. Proxies that start later notice this,
        too."""
        self.policies.is_ingest_paused = is_paused
        self.pipeline.pause_ingest(is_paused)

    def turn(self, times: int = 1) -> None:
        """Run turns of the pipeline. A lost session starts again, as in the worker."""
        for _ in range(times):
            try:
                self.pipeline.turn()
                if self._confirms:
                    self.pipeline.confirm()
            except SessionLost:
                self._end_session()
            except StartOverRefused:
                self.crash()
                raise

    def settle(self) -> None:
        for _ in range(1_000):
            before = self._progress()
            self.turn(2)
            if before == self._progress():
                return
        raise AssertionError("the pipeline does not come to rest")

    def come_to_an_end(self) -> None:
        self.kafka.commit_faults.clear()
        for _ in range(6):
            self.time.pass_ms(120)
            self.settle()

    def _progress(self) -> object:
        read = [shard.next_offset for shard in self.shards.values()]
        return self.kafka.read(DEAD_LETTERS), self.positions(), read

    def positions(self) -> list[Position]:
        return [shard.position for shard in self.shards.values()]

    def crash(self) -> None:
        self.refusals = Refusals()
        self._end_session()

    def _end_session(self) -> None:
        if self._parts is not None:
            for shard in self.shards.values():
                shard.close()
            self.kafka.leave(self.member)
        self._parts = None

    def stop(self) -> None:
        """Stop the proxy with a hand-over. If the hand-over fails, the proxy's memory is lost."""
        if self._parts is not None:
            with suppress(SessionLost):
                self.pipeline.hand_over(list(self.shards))
        self.crash()

    def delivered(self, topic: str = "orders") -> list[Record]:
        return self.kafka.read(topic)

    def origins(self, topic: str = "orders") -> list[str]:
        return [
            cast(bytes, record.header("timer-origin")).decode() for record in self.kafka.read(topic)
        ]

    def ends(self) -> list[tuple[str, str, str]]:
        """Return all ends: origin, `delivered` or the outcome, and its detail."""
        delivered = [
            (origin.decode(), "delivered", "")
            for topic in self.kafka.topics
            for record in self.kafka.read(topic)
            if (origin := record.header("timer-origin"))
        ]
        outcomes = [json.loads(record.value() or b"") for record in self.kafka.read(OUTCOMES)]
        return delivered + [(o["origin"], o["outcome"], o["detail"]) for o in outcomes]

    def evidence(self, check_topics: tuple[str, ...] = ()) -> Ends:
        ends = Ends({placed.place: placed.record for placed in self._placed(INGRESS)})
        for topic in self.kafka.topics:
            (ends.checks.extend if topic in check_topics else ends.add_targets)(self._placed(topic))
        ends.add_outcomes(placed.record for placed in self._placed(OUTCOMES))
        ends.add_dead_letters(placed.record for placed in self._placed(DEAD_LETTERS))
        return ends

    def _placed(self, topic: str) -> list[Placed]:
        return [
            Placed(
                topic,
                Incoming(r.partition(), r.offset(), r.key(), r.value(), r.headers_, r.timestamp_ms),
            )
            for r in self.kafka.read(topic)
        ]

    def ask_broker_time(self) -> None:
        if self.asks_broker_time:
            self.clock.set_broker_time(self.time.broker_time())

    def assemble(self) -> Parts:
        """Return a session of the proxy, wired as in a real proxy. It has not joined the group."""
        self.clock = self.time.clock(self.max_step_ms)
        self.ask_broker_time()
        kafka = KafkaClients(
            TopicFacts(INGRESS, self.topic_id, self.kafka.partitions),
            cast(Any, self.policies),
            cast(Any, StandInAdmin(self.kafka)),
            lambda _number: cast(Any, StandInProducer(self.kafka, self.throttling.written)),
            lambda: cast(Any, StandInConsumer(self.kafka, self.batch_records, self.member)),
            lambda: cast(Any, StandInListener(self.kafka)),
            lambda: cast(Any, StandInReader(self.kafka)),
            lambda: self._commits,
        )
        settings = SETTINGS.model_copy(
            update={
                "kafka": {"compression.type": "lz4" if self.compresses else "none"},
                "bodies": self.bodies,
                "admission": self.admission,
                "memory": self.memory,
                "recovery": RecoverySettings(
                    accept_loss_below=self.accept_loss_below,
                    set_back_watermark=self.set_back_watermark,
                ),
                "release": ReleaseSettings(
                    transaction_records=self._limit, transaction_interval_ms=self.interval_ms
                ),
            }
        )
        return assemble(
            kafka,
            settings,
            self.policy,
            self.release,
            self.cap,
            cast(Any, self._folders),
            self.clock,
            self.metrics,
            heartbeat=lambda: None,
            now_s=lambda: self.time.monotonic_now_ms / 1_000,
            trace=self.trace,
            refusals=self.refusals,
            throttling=self.throttling,
        )
