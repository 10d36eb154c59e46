"""Consumer of the target topic (read_committed) that records arrival times."""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tools.benchmarks import clients
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.keys import KEY_BYTES, Keys, read_keys
from tools.benchmarks.processes import Announce

BATCH_RECORDS = 1_000
QUIET_S = 1.0
KNOWN_WITHIN_S, ASK_AGAIN_S = 60, 0.1


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """Order to read a topic until `count` records came and no more follow, for at most `deadline_s`
    seconds. `stamped` records have the proxy's header `timer-due`."""

    bootstrap_servers: str
    topic: str
    count: int
    deadline_s: float
    stamped: bool = True


class Batch(NamedTuple):
    records: list[Message]
    keys: Keys
    received_ms: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """All received records in order of arrival, as arrays of equal length."""

    sequence: npt.NDArray[np.int64]
    due_ms: npt.NDArray[np.int64]
    received_ms: npt.NDArray[np.float64]
    cpu_s: float

    @property
    def lateness_ms(self) -> npt.NDArray[np.float64]:
        return self.received_ms - self.due_ms


def read(announce: Announce, order: ReadOrder) -> Arrivals:
    gc.disable()
    consumer = clients.consumer(order.bootstrap_servers, {"enable.partition.eof": True})
    try:
        assign_whole(consumer, [order.topic])
        announce()
        cpu_before_s = time.process_time()
        deadline_s = time.monotonic() + order.deadline_s
        batches, received_ms = _collect(consumer, order, deadline_s)
        cpu_s = time.process_time() - cpu_before_s
    finally:
        consumer.close()
    return _arrivals(batches, received_ms, cpu_s)


def assign_whole(consumer: Consumer, topics: Sequence[str]) -> None:
    """Assign every partition, and read each partition to its end to warm up the consumer."""
    until_s = time.monotonic() + KNOWN_WITHIN_S
    known = consumer.list_topics(timeout=KNOWN_WITHIN_S).topics
    while not known.keys() >= set(topics) and time.monotonic() < until_s:
        time.sleep(ASK_AGAIN_S)  # the broker does not know a new topic at once
        known = consumer.list_topics(timeout=KNOWN_WITHIN_S).topics
    places = [(topic, number) for topic in topics for number in known[topic].partitions]
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
    waiting = set(places)
    deadline_s = time.monotonic() + 30 + len(places) / 50
    while waiting and time.monotonic() < deadline_s:
        message = consumer.poll(0.5)
        if message is None:
            continue
        place = (message.topic() or "", message.partition() or 0)
        if not _is_end(message):
            raise BenchmarkError(f"{place} holds records before the measurement; use a new topic.")
        waiting.discard(place)


def _collect(
    consumer: Consumer, order: ReadOrder, deadline_s: float
) -> tuple[list[Keys], list[float]]:
    batches: list[Keys] = []
    received_ms: list[float] = []
    left = order.count
    while (batch := next_batch(consumer, left <= 0, order.stamped)) or left > 0:
        if batch is not None:
            batches.append(batch.keys)
            received_ms.append(batch.received_ms)
            left -= len(batches[-1])
        if time.monotonic() > deadline_s:
            break
    return batches, received_ms


def next_batch(consumer: Consumer, is_complete: bool, stamped: bool = True) -> Batch | None:
    """Return the next batch, or None if no record comes in 0.1 s. If `is_complete`, wait QUIET_S
    for surplus records. If `stamped`, check the header `timer-due` of the first record."""
    first = consumer.poll(QUIET_S if is_complete else 0.1)
    if first is None:
        return None
    messages = [first, *consumer.consume(BATCH_RECORDS, 0)]
    received_ms = time.time() * 1000
    records = [message for message in messages if not _is_end(message)]
    if records and stamped:
        _check_stamp(records[0])
    return Batch(records, read_keys([message.key() or b"" for message in records]), received_ms)


def _check_stamp(message: Message) -> None:
    key = message.key() or b""
    stamps = dict(message.headers() or [])
    expected_ms = int(read_keys([key])["due_ms"][0]) if len(key) == KEY_BYTES else None
    if stamps.get("timer-due") != str(expected_ms).encode():
        raise BenchmarkError(
            f"A record in {message.topic()} has the header timer-due "
            f"{stamps.get('timer-due')!r}, but its due is {expected_ms}."
        )


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise BenchmarkError(f"The reader got an error instead of records: {error}")


def _arrivals(batches: list[Keys], received_ms: list[float], cpu_s: float) -> Arrivals:
    keys = np.concatenate(batches) if batches else read_keys([])
    sizes = [len(batch) for batch in batches]
    return Arrivals(
        sequence=keys["sequence"].astype(np.int64),
        due_ms=keys["due_ms"].astype(np.int64),
        received_ms=np.repeat(np.array(received_ms, np.float64), sizes),
        cpu_s=cpu_s,
    )
