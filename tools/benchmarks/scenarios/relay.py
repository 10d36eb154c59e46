"""Scenario relay, the yardstick: a consumer and a producer pass records on. They use the same
records, the same Kafka client and the same settings as in the other scenarios, but no delay, no
schedule and no transactions. The results of the other scenarios are shown as ratios to the relay's
rate, because ratios are valid on other machines."""

import gc
import signal
import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, Producer

from tools.benchmarks import clients, topics
from tools.benchmarks.accounting import Meter
from tools.benchmarks.loads import Load, send
from tools.benchmarks.processes import Announce, Job
from tools.benchmarks.trial import World

PATIENCE_S = 120
BATCH_RECORDS = 2_000
BATCH_WAIT_S = 0.005


@dataclass(frozen=True, slots=True)
class Relayed:
    records: int
    records_per_s: float
    cpu_us_per_record: dict[str, float]
    other_cores: float


@dataclass(frozen=True, slots=True)
class Relay:
    median: Relayed
    rounds: list[Relayed]


@dataclass(frozen=True, slots=True)
class _Passed:
    elapsed_s: float
    cpu_s: float


def measure(world: World) -> Relay:
    topics.create(world.bootstrap_servers, "relay.ingress")
    count = world.scale.relay_records
    world.say(f"relay: {count} records through a plain relay, {world.scale.rounds} times")
    _load(world, count)
    rounds = [_run(world, number, count) for number in range(world.scale.rounds + 2)][2:]
    topics.delete_starting_with(world.bootstrap_servers, "relay.")
    by_rate = sorted(rounds, key=lambda relayed: relayed.records_per_s)
    return Relay(by_rate[len(by_rate) // 2], rounds)


def _load(world: World, count: int) -> None:
    load = Load(
        world.bootstrap_servers,
        "relay.ingress",
        "relay.target",
        count,
        delay_ms=(1_000, 30_000),
        value_bytes=world.scale.value_bytes,
    )
    with Job(send, load) as generator:
        generator.result(PATIENCE_S)


def _run(world: World, number: int, count: int) -> Relayed:
    target = f"relay.target-{number}"
    topics.create(world.bootstrap_servers, target)
    with Job(relay, world.bootstrap_servers, "relay.ingress", target, count) as job:
        job.wait_ready()
        meter = Meter({"broker": world.broker_pid})
        passed = job.result(PATIENCE_S)
    bill = meter.bill({"proxy": passed.cpu_s})
    return Relayed(
        records=count,
        records_per_s=round(count / passed.elapsed_s),
        cpu_us_per_record=bill.us_per_record(count),
        other_cores=bill.other_cores,
    )


def relay(
    announce: Announce, bootstrap_servers: str, source: str, target: str, count: int
) -> _Passed:
    """Pass `count` records on, timed from the first batch to the last acknowledgement."""
    gc.disable()
    consumer = clients.consumer(bootstrap_servers)
    producer = clients.producer(bootstrap_servers)
    producer.list_topics(target, timeout=10)
    announce()
    consumer.subscribe([source])
    batch = _first_batch(consumer)
    started_s, cpu_before_s = time.monotonic(), time.process_time()
    left = count
    while left > 0:
        _pass_on(batch, producer, target)
        left -= len(batch)
        batch = consumer.consume(BATCH_RECORDS, BATCH_WAIT_S) if left > 0 else []
    clients.finish(producer)
    passed = _Passed(time.monotonic() - started_s, time.process_time() - cpu_before_s)
    consumer.close()
    return passed


def relay_on(bootstrap_servers: str, source: str) -> None:
    gc.disable()
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: ending.set())
    consumer = clients.consumer(bootstrap_servers, {"group.id": "relay"})
    producer = clients.producer(bootstrap_servers)
    consumer.subscribe([source])
    while not ending.is_set():
        _pass_on(consumer.consume(BATCH_RECORDS, BATCH_WAIT_S), producer)
    clients.finish(producer)
    consumer.commit(asynchronous=False)
    consumer.close()


def _first_batch(consumer: Consumer) -> list[Message]:
    batch: list[Message] = []
    while not batch:
        batch = consumer.consume(BATCH_RECORDS, BATCH_WAIT_S)
    return batch


def _pass_on(batch: list[Message], producer: Producer, only_target: str = "") -> None:
    for message in batch:
        asked: dict[str, bytes] = dict(message.headers() or [])  # type: ignore[arg-type]
        target = only_target or str(asked["timer-topic"], "utf-8")
        kept: clients.Headers = [
            (name, value) for name, value in asked.items() if not name.startswith("timer-")
        ]
        origin = f"{message.topic()}/{message.partition()}/{message.offset()}"
        kept += [("timer-origin", origin.encode()), ("timer-due", asked["timer-deliver-at"])]
        try:
            producer.produce(target, message.value(), message.key(), headers=kept)
        except BufferError:
            clients.wait_for_room(producer)
            producer.produce(target, message.value(), message.key(), headers=kept)
    producer.poll(0)
