"""A whole proxy on the stand-in Kafka: the real pipeline, recovery and publisher, manual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, cast

from proxy.dispatch.rate_limit import RateLimit, Unlimited
from proxy.dispatch.release_control import ReleaseControl
from proxy.errors import StartOverRefused
from proxy.kafka.ingress import Ingress
from proxy.kafka.ingress_lookup import IngressLookup
from proxy.kafka.topics import TopicFacts
from proxy.publishing.errors import SessionLost
from proxy.publishing.publisher import Publisher
from proxy.publishing.targets import Targets
from proxy.records.message import Message
from proxy.records.position import PolicyFrom, Position
from proxy.recovery.fetched_bodies import FetchedBodies
from proxy.recovery.recovery import Judge, Recovery
from proxy.requests.policy import Policy
from proxy.scheduling.shard import Shard
from proxy.telemetry.metrics import Metrics
from proxy.worker.pacing import Pacing, TransactionLimits
from proxy.worker.pipeline import Pipeline
from storage.register import Register
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
    StandInAdmin,
    StandInConsumer,
    StandInKafka,
    StandInProducer,
    StandInReader,
)

DEAD_LETTERS = "timer.dead-letters"
OUTCOMES = "timer.outcomes"


class Policies:
    """The settings topic, without Kafka."""

    def __init__(self) -> None:
        self._policies: dict[str, Policy] = {}
        self._served: dict[tuple[str, int], str] = {}

    def ensure(self, policy: Policy) -> str:
        self._policies[policy.digest] = policy
        return policy.digest

    def policy(self, digest: str) -> Policy:
        return self._policies[digest]

    def served_topic_id(self, topic: str, partition: int) -> str | None:
        return self._served.get((topic, partition))

    def mark_served(
        self, topic: TopicFacts, partition: int, policies: Sequence[PolicyFrom]
    ) -> None:
        self._served[topic.name, partition] = topic.topic_id


class World:
    """One proxy, one broker, one clock. `open_store` decides what survives a crash.

    With `commits` the transaction of a turn is confirmed by the next one, as in a real proxy, and
    they decide when it is really committed; without, each turn ends with it.
    """

    def __init__(
        self,
        partitions: int = 1,
        open_store: Callable[[int, Position], Store] | None = None,
        limit: int = 10_000,
        targets: tuple[str, ...] = ("orders",),
        commits: Executor | None = None,
        open_register: Callable[[int, Position, int], Register] | None = None,
    ) -> None:
        self.time = ManualTime()
        self.kafka = StandInKafka(partitions, lambda: self.time.wall_now_ms)
        self.kafka.topics = dict.fromkeys(targets, 4)
        self.policies = Policies()
        self.policy = Policy()
        self.topic_id = "id-1"
        self.accept_loss_below: dict[int, int] = {}
        self.has_local_state = False
        self.batch_records = 1_000
        self.bodies = "local"
        self._holds_stubs = False
        self._open_store = open_store or (lambda _p, _at: MemoryStore())
        self._open_register = open_register or (lambda _p, _at, _covered: MemoryRegister())
        self._limits = TransactionLimits(limit, 0)
        self._commits, self._confirms = commits or AtOnce(), commits is None
        self._pipeline: Pipeline | None = None
        self.metrics = Metrics()
        self.release = ReleaseControl()
        self.cap: RateLimit | Unlimited = Unlimited()

    @property
    def pipeline(self) -> Pipeline:
        """The running proxy; started when there is none."""
        if self._pipeline is None:
            self._pipeline = self._start()
        return self._pipeline

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
        """A producer writes to the ingress."""
        if isinstance(headers, dict):
            headers = [(n, v.encode() if isinstance(v, str) else v) for n, v in headers.items()]
        return self.kafka.append(INGRESS, partition, key, value, headers)

    def turn(self, times: int = 1) -> None:
        """Turn the pipeline; a lost session is started anew, as the worker does."""
        for _ in range(times):
            try:
                self.pipeline.turn()
                if self._confirms:
                    self.pipeline.confirm()
            except SessionLost:
                self.crash()
            except StartOverRefused:
                self.crash()
                raise

    def settle(self) -> None:
        """Turn until nothing more can happen at this time."""
        for _ in range(1_000):
            before = self._progress()
            self.turn(2)
            if before == self._progress():
                return
        raise AssertionError("the pipeline does not come to rest")

    def _progress(self) -> object:
        read = [shard.next_offset for shard in self.shards.values()]
        return self.kafka.read(DEAD_LETTERS), self.positions(), read

    def positions(self) -> list[Position]:
        return [shard.position for shard in self.shards.values()]

    def crash(self) -> None:
        """SIGKILL: memory is gone; files are as they are."""
        if self._pipeline is not None:
            for shard in self._pipeline.shards.values():
                shard.close()
        self._pipeline = None

    def stop(self) -> None:
        """SIGTERM: what is owned is handed over; if that fails, what is in memory is gone."""
        if self._pipeline is not None:
            with suppress(SessionLost):
                self._pipeline.hand_over(list(self._pipeline.shards))
        self.crash()

    def delivered(self, topic: str = "orders") -> list[Record]:
        return self.kafka.read(topic)

    def origins(self, topic: str = "orders") -> list[str]:
        """Where the delivered records came from, in the order of each target partition."""
        return [
            cast(bytes, record.header("timer-origin")).decode() for record in self.kafka.read(topic)
        ]

    def ends(self) -> list[tuple[str, str, str]]:
        """How everything ended that has: origin, `delivered` or the outcome, its detail."""
        delivered = [
            (origin.decode(), "delivered", "")
            for topic in self.kafka.topics
            for record in self.kafka.read(topic)
            if (origin := record.header("timer-origin"))
        ]
        outcomes = [json.loads(record.value() or b"") for record in self.kafka.read(OUTCOMES)]
        return delivered + [(o["origin"], o["outcome"], o["detail"]) for o in outcomes]

    def evidence(self, check_topics: tuple[str, ...] = ()) -> Ends:
        """What lies in the topics, in the form that the oracle reads."""
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

    def _with_bodies(self, partition: int, store: Store, judge: Judge) -> Store:
        puts_stubs = self.bodies == "kafka"
        self._holds_stubs |= puts_stubs
        if not self._holds_stubs:
            return store
        read_back = partial(self._lookup().read, partition)
        return FetchedBodies(store, read_back, judge, puts_stubs=puts_stubs, now_s=lambda: 0.0)

    def _lookup(self) -> IngressLookup:
        return IngressLookup(
            lambda: cast(Any, StandInReader(self.kafka)), INGRESS, lambda: None, lambda: 0.0
        )

    def _read_back(self, partition: int, offsets: Sequence[int]) -> Mapping[int, Message]:
        return self._lookup().read(partition, offsets, 100)

    def _start(self) -> Pipeline:
        digest = self.policies.ensure(self.policy)
        facts = TopicFacts(INGRESS, self.topic_id, self.kafka.partitions)
        consumer = StandInConsumer(self.kafka, self.batch_records)
        ingress = Ingress(cast(Any, consumer), INGRESS)
        recovery = Recovery(
            facts,
            self.policies,
            digest,
            self.accept_loss_below,
            self._open_store,
            lambda _: self.has_local_state,
            self._with_bodies,
            self._open_register,
            self._read_back,
        )
        publisher = Publisher(
            cast(Any, StandInProducer(self.kafka)),
            Targets(cast(Any, StandInAdmin(self.kafka))),
            DEAD_LETTERS,
            OUTCOMES,
            lambda: None,
            self._commits,
            self.policy.retry_of("publish"),
            self.release,
        )
        pipeline = Pipeline(
            ingress,
            publisher,
            self.time.clock(),
            Pacing(self._limits, self.cap),
            self.metrics,
            lambda partition, policies: self.policies.mark_served(facts, partition, policies),
        )

        class Owner:
            def take_over(self, partitions: list[int]) -> dict[int, int]:
                shards = recovery.take_over(ingress, partitions)
                pipeline.adopt(shards)
                return {p: shard.next_offset for p, shard in shards.items()}

            def hand_over(self, partitions: list[int]) -> None:
                pipeline.hand_over(partitions)

            def lose(self, partitions: list[int]) -> None:
                pipeline.lose(partitions)

        ingress.join(Owner())

        return pipeline
