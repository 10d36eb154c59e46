"""The reader: a read_committed consumer of the target topic that notes when each record came."""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.benchmarks import clients
from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.keys import KEY_BYTES, Keys, read_keys
from tests.benchmarks.processes import Announce

BATCH_RECORDS = 1_000
QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """What to read: until `count` records came and then nothing more, or until `deadline_s`."""

    bootstrap_servers: str
    topic: str
    count: int
    deadline_s: float
    stamped: bool = True


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Every record that came, in order of arrival: three arrays of the same length."""

    sequence: npt.NDArray[np.int64]
    due_ms: npt.NDArray[np.int64]
    received_ms: npt.NDArray[np.float64]
    cpu_s: float

    @property
    def lateness_ms(self) -> npt.NDArray[np.float64]:
        """Received minus due, at the consumer's wall clock."""
        return self.received_ms - self.due_ms


def read(announce: Announce, order: ReadOrder) -> Arrivals:
    """Reads a topic from its beginning. Runs in a process of its own."""
    gc.disable()
    consumer = clients.consumer(order.bootstrap_servers, {"enable.partition.eof": True})
    try:
        _assign_whole_topic(consumer, order.topic)
        announce()
        cpu_before_s = time.process_time()
        batches, received_ms = _collect(consumer, order)
        cpu_s = time.process_time() - cpu_before_s
    finally:
        consumer.close()
    return _arrivals(batches, received_ms, cpu_s)


def _assign_whole_topic(consumer: Consumer, topic: str) -> None:
    """Assigns every partition and waits until each was read to its end, so that reading is warm."""
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    waiting = set(partitions)
    deadline_s = time.monotonic() + 30
    while waiting and time.monotonic() < deadline_s:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if not _is_end(message):
            raise BenchmarkError(f"{topic} holds records before the measurement; use a new topic.")
        waiting.discard(message.partition())


def _collect(consumer: Consumer, order: ReadOrder) -> tuple[list[Keys], list[float]]:
    batches: list[Keys] = []
    received_ms: list[float] = []
    left = order.count
    deadline_s = time.monotonic() + order.deadline_s
    while time.monotonic() < deadline_s:
        first = consumer.poll(0.1 if left > 0 else QUIET_S)
        if first is not None:
            messages = [first, *consumer.consume(BATCH_RECORDS, 0)]
            received_ms.append(time.time() * 1000)
            batches.append(read_keys(_keys(messages, order)))
            left -= len(batches[-1])
        elif left <= 0:
            break
    return batches, received_ms


def _keys(messages: Sequence[Message], order: ReadOrder) -> list[bytes]:
    """The keys of the records among the messages; the first record's stamp is checked."""
    records = [message for message in messages if not _is_end(message)]
    if records and order.stamped:
        _check_stamp(records[0])
    return [message.key() or b"" for message in records]


def _check_stamp(message: Message) -> None:
    key = message.key() or b""
    stamps = dict(message.headers() or [])
    expected_ms = int(read_keys([key])["due_ms"][0]) if len(key) == KEY_BYTES else None
    if stamps.get("timer-due") != str(expected_ms).encode():
        raise BenchmarkError(
            f"A record in {message.topic()} says timer-due {stamps.get('timer-due')!r}, "
            f"but {expected_ms} was asked for."
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
