"""Random history (requests and events) played by the proxy's own code on a stand-in for Kafka. The
result is the topics, with the moment at which each record appeared."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from proxy.config.settings import AdmissionSettings
from proxy.dispatch.release_control import ReleaseControl, WorkerRateLimit
from proxy.kafka.settings_topic import ServedPartition
from proxy.kafka.topics import TopicFacts
from proxy.protocol.position import PolicyFrom
from proxy.protocol.proofs import HopKey
from spark_jobs.kafka.snapshot import Committed
from tests.property.test_exactly_once import COMMITS, perform
from tests.support.simulation.stand_in import INGRESS, Record, StandInKafka
from tests.support.simulation.world import SettingsTopic, World
from tools.campaign.contents import Contents, Held, Moment
from tools.campaign.random_steps import Step, drawn_policy, drawn_steps, tail
from tools.campaign.scene import (
    HOP_KEY,
    IDLE_MS,
    LAST,
    MOMENTS_MS,
    OVERDUE,
    OWN,
    OWN_STRIDE,
    PARTITIONS,
    QUIET_MS,
    SMALL_BYTES,
    TOPIC_ID,
    named,
    topics_of,
)

RUNS_A_MOVE = 4
"""Only every `RUNS_A_MOVE`th run moves records."""
QUIET_STEPS = 60
"""Number of steps at the end of a run, in which all records end. Many steps are needed: in each, a
rate cap allows only the deliveries of a quarter of a second."""


class KnownSettingsTopic(SettingsTopic):
    """Settings topic that keeps the served policies, and signs with the same key in every run."""

    def __init__(self, kafka: StandInKafka) -> None:
        super().__init__(kafka)
        self.served: dict[int, ServedPartition] = {}

    def signing_key(self) -> HopKey:
        return HOP_KEY

    def hop_key(self, digest: str) -> HopKey:
        return HOP_KEY

    def record_served(
        self, topic: TopicFacts, policies: Mapping[int, Sequence[PolicyFrom]]
    ) -> None:
        super().record_served(topic, policies)
        for partition, committed in policies.items():
            known = self.served.get(partition, ServedPartition(topic.topic_id))
            self.served[partition] = known.joined(topic.topic_id, committed)

    def texts(self) -> dict[str, str]:
        return {digest: policy.to_json() for digest, policy in self._policies.items()}


@dataclass(slots=True)
class _Look:
    """Moment, with the length of each log then."""

    moment: Moment
    lengths: dict[tuple[str, int], int] = field(default_factory=dict)


def played(seed: int, number: int, run: int) -> Contents:
    """Play a history in the partitions and targets of `run`. The history depends only on `number`
    and `seed`."""
    chance = Random(f"{seed}/{number}")
    moves = Random(f"{seed}/{number}/moves") if number % RUNS_A_MOVE == 0 else None
    world, settings = _world(chance, run)
    looks: list[_Look] = []
    try:
        for at_ms in MOMENTS_MS[:LAST]:
            for step in drawn_steps(chance, run, world, moves):
                _perform(world, step, at_ms)
            _pass_until(world, at_ms)
            if chance.random() < 0.5:
                world.turn(chance.randrange(1, 4))
            looks.append(_look(world, settings))
        _let_end(world, chance)
        looks.append(_look(world, settings))
    finally:
        world.crash()
    return _contents(run, world, settings, looks)


def _world(chance: Random, run: int) -> tuple[World, KnownSettingsTopic]:
    commits = chance.choice(COMMITS)
    world = World(PARTITIONS, None, chance.choice([1, 3, 6, 1_000]), (), commits)
    world.kafka.first_partition = run * PARTITIONS
    world.kafka.is_partitioning = True
    world.kafka.topics = topics_of(run)
    world.kafka.max_bytes = {named("small", run): SMALL_BYTES}
    settings = KnownSettingsTopic(world.kafka)
    world.policies, world.topic_id = settings, TOPIC_ID
    world.policy, world.max_step_ms = drawn_policy(chance), 0
    per_target = {"bills-*": 1} if chance.random() < 0.2 else {}
    world.release = ReleaseControl(per_target, OVERDUE)
    if chance.random() < 0.1:
        world.cap = WorkerRateLimit(chance.choice([20, 50]))
    if chance.random() < 0.15:
        world.admission = AdmissionSettings(records=chance.randrange(2, 8))
    world.batch_records = chance.choice([1, 3, 1_000])
    return world, settings


def _perform(world: World, step: Step, until_ms: int) -> None:
    """Perform one step. The clock does not go beyond `until_ms`."""
    match step:
        case ("write", dict() as written):
            _write(world, written)
        case ("write meanwhile", dict() as written):
            world.kafka.meanwhile.append(lambda: _write(world, written))
        case ("pass" | "sleep" as how, int() as elapsed_ms):
            left_ms = max(0, until_ms - world.time.broker_now_ms)
            perform(world, (how, min(elapsed_ms, left_ms)))
        case ("pause", list() as patterns):
            world.release.pause(patterns)
        case ("create", str() as topic):
            world.kafka.topics[topic] = 4
        case _:
            perform(world, step)


def _write(world: World, written: dict[str, object]) -> None:
    world.send(**written)  # type: ignore[arg-type]


def _pass_until(world: World, at_ms: int) -> None:
    world.time.pass_ms(max(0, at_ms - world.time.broker_now_ms))


def _let_end(world: World, chance: Random) -> None:
    """End all disturbances and pass time until all records have ended. Then write some records that
    the proxy does not read."""
    world.kafka.commit_faults.clear()
    world.release.pause([])
    if world.admission != AdmissionSettings():
        world.stop()
        world.admission = AdmissionSettings()
    for _ in range(QUIET_STEPS):
        world.time.pass_ms(QUIET_MS // QUIET_STEPS)
        world.settle()
    world.stop()
    world.time.pass_ms(IDLE_MS)
    for step in tail(chance, world):
        _perform(world, step, MOMENTS_MS[LAST])


def _look(world: World, settings: KnownSettingsTopic) -> _Look:
    kafka = world.kafka
    numbers = range(kafka.first_partition, kafka.first_partition + kafka.partitions)
    moment = Moment(
        kafka.now_ms(),
        {number: _committed(kafka, number) for number in numbers},
        {number: kafka.end(number) for number in numbers},
        {number: tuple(one.policies) for number, one in settings.served.items()},
    )
    return _Look(moment, {place: len(log) for place, log in kafka.logs.items()})


def _committed(kafka: StandInKafka, number: int) -> Committed:
    if number not in kafka.committed:
        return Committed(number)
    return Committed.from_metadata(number, *kafka.committed[number])


def _contents(
    run: int, world: World, settings: KnownSettingsTopic, looks: Sequence[_Look]
) -> Contents:
    ingress: list[Held] = []
    others: list[Held] = []
    for (topic, partition), log in sorted(world.kafka.logs.items()):
        if topic == OWN.settings:
            continue
        ends = [look.lengths.get((topic, partition), 0) for look in looks]
        held = [_held(record, run, bisect_right(ends, record.offset_)) for record in log]
        (ingress if topic == INGRESS else others).extend(held)
    counts = {**world.kafka.topics, **dict.fromkeys(OWN.all, 1)}
    moments = [look.moment for look in looks]
    return Contents(run, ingress, others, moments, settings.texts(), counts)


def _held(record: Record, run: int, since: int) -> Held:
    is_own = record.topic_ in {OWN.outcomes, OWN.dead_letters}
    first = run * OWN_STRIDE if is_own else 0
    return Held(
        record.topic_,
        record.partition_,
        first + record.offset_,
        record.timestamp_ms,
        record.key_,
        record.value_,
        record.headers_,
        since,
    )
