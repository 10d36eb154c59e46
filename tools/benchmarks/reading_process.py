"""Prototype: how much work would a separate reading process take from a worker's loop? `python -m
tools.benchmarks.reading_process` takes five minutes. Pending records are fetched, parsed and stored
as in a worker, without transactions. Two ways are compared. In the first, one thread does all this
work. In the second, one process fetches and parses, and another process stores. They share columns
of the parsed records in memory. The cost of a thread is its CPU time."""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Annotated, Final, NamedTuple, cast

import numpy as np
import typer
from confluent_kafka import Consumer

from proxy.kafka.ingress import Fetched
from proxy.protocol.body import Message
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import RequestReader
from storage.opening import open_store
from storage.store import Committed, Entry
from tools.benchmarks import clients, topics
from tools.benchmarks.__main__ import made_world
from tools.benchmarks.loads import Load, send
from tools.benchmarks.processes import Announce, Job, leave_on_sigterm
from tools.benchmarks.scale import FAR_MS, FULL
from tools.benchmarks.turns import Figures, in_turns, told

ONE, TWO = "one thread", "two processes"
TOPIC: Final = "reading.ingress"
PATIENCE_S: Final = 300
FETCH_RECORDS: Final = 2_000
BUDGET_ENTRIES: Final = 2_048
SLOTS: Final = 8
SLOT_BYTES: Final = 4 << 20
"""Size of a slot in shared memory. A batch of small records is far smaller."""
WARM_RECORDS: Final = 50_000


class Busy(NamedTuple):
    """CPU and wall time of a thread. `anew_s` is the part of `cpu_s` that makes entries from the
    shared columns."""

    cpu_s: float
    elapsed_s: float
    anew_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Source:
    bootstrap_servers: str
    group: str
    records: int


class HandedOver(NamedTuple):
    """Batch of one partition in a slot of shared memory. `names` are targets that earlier
    batches did not have."""

    slot: int
    partition: int
    records: int
    names: list[str]


class Stores:
    def __init__(self, folder: Path) -> None:
        self._stores = {
            number: open_store("wheel", folder / str(number), Committed(0, -1, 0, 0))
            for number in range(topics.PARTITIONS)
        }

    def put(self, partition: int, entries: list[Entry]) -> None:
        """Store entries as a worker does in a turn, without waiting for a commit."""
        store = self._stores[partition]
        store.put(entries)
        store.maintain(entries[-1][1] + 1, BUDGET_ENTRIES)


def measure(
    records: Annotated[int, typer.Option(help="Number of pending records.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds. Each measures both ways twice.")] = 2,
) -> None:
    """Print the CPU time of each thread (us per record), and records per second."""
    leave_on_sigterm()
    with made_world(None, (sys.executable, "-m", "proxy"), FULL) as world:
        servers = world.bootstrap_servers
        topics.create(servers, TOPIC)
        load = Load(servers, TOPIC, "orders", records + WARM_RECORDS, FAR_MS)
        with Job(send, load) as generator:
            generator.result(PATIENCE_S)

        def run(kind: str, name: str) -> Figures:
            source, folder = Source(servers, name, records), world.folder / name
            return (_one if kind == ONE else _two)(source, folder)

        found = in_turns([ONE, TWO], rounds, "reading", run)
        for kind in (ONE, TWO):
            figures = (
                f"{name} {told([of[kind][name] for of in found])}" for name in found[0][kind]
            )
            print(f"{kind}: {'; '.join(figures)}", flush=True)


def _one(source: Source, folder: Path) -> Figures:
    with Job(read_and_keep, source, folder) as job:
        busy = job.result(PATIENCE_S)
    return {"loop us": _us(busy.cpu_s, source), "records/s": source.records / busy.elapsed_s}


def _two(source: Source, folder: Path) -> Figures:
    with ExitStack() as opened:
        memory = SharedMemory(create=True, size=SLOTS * SLOT_BYTES)
        opened.callback(memory.unlink)
        opened.callback(memory.close)
        batches, handed_over = Pipe(duplex=False)
        free, freed = Pipe(duplex=False)
        for slot in range(SLOTS):
            freed.send(slot)
        keeping = opened.enter_context(Job(keep, source, folder, memory.name, batches, freed))
        reading = opened.enter_context(Job(read, source, memory.name, free, handed_over))
        keeper, reader = keeping.result(PATIENCE_S), reading.result(PATIENCE_S)
    return {
        "loop us": _us(keeper.cpu_s, source),
        "of it entries anew us": _us(keeper.anew_s, source),
        "reader us": _us(reader.cpu_s, source),
        "records/s": source.records / keeper.elapsed_s,
    }


def read_and_keep(_announce: Announce, source: Source, folder: Path) -> Busy:
    gc.disable()
    stores = Stores(folder)
    batches = parsed(source)
    next(batches)
    began_s, cpu_s = time.monotonic(), time.thread_time()
    for partition, entries in batches:
        stores.put(partition, entries)
    return Busy(time.thread_time() - cpu_s, time.monotonic() - began_s)


def read(
    _announce: Announce, source: Source, memory: str, free: Connection, handed_over: Connection
) -> Busy:
    gc.disable()
    shared = SharedMemory(memory)
    numbers: dict[str, int] = {}
    batches = parsed(source)
    next(batches)
    began_s, cpu_s = time.monotonic(), time.thread_time()
    for partition, entries in batches:
        slot, told_before = free.recv(), len(numbers)
        _write(shared, slot, entries, numbers)
        names = list(numbers)[told_before:]
        handed_over.send(HandedOver(slot, partition, len(entries), names))
    busy = Busy(time.thread_time() - cpu_s, time.monotonic() - began_s)
    shared.close()
    return busy


def keep(
    _announce: Announce,
    source: Source,
    folder: Path,
    memory: str,
    batches: Connection,
    freed: Connection,
) -> Busy:
    gc.disable()
    shared, stores, names = SharedMemory(memory), Stores(folder), list[str]()
    left, batch = source.records, batches.recv()
    began_s, cpu_s, anew_s = time.monotonic(), time.thread_time(), 0.0
    while True:
        names += batch.names
        anew_began_s = time.thread_time()
        entries = _entries(shared, batch, names)
        anew_s += time.thread_time() - anew_began_s
        freed.send(batch.slot)
        stores.put(batch.partition, entries)
        left -= batch.records
        if left <= 0:
            break
        batch = batches.recv()
    busy = Busy(time.thread_time() - cpu_s, time.monotonic() - began_s, anew_s)
    shared.close()
    return busy


def parsed(source: Source) -> Iterator[tuple[int, list[Entry]]]:
    """Yield entries by partition. The first item has no entries. It marks the end of the
    warm-up."""
    consumer = clients.consumer(source.bootstrap_servers, {"group.id": source.group})
    consumer.subscribe([TOPIC])
    reader, left = RequestReader(Policy()), source.records
    for _ in _fetched(consumer, WARM_RECORDS):
        pass
    yield 0, []
    for fetched in _fetched(consumer, left):
        for partition, records in fetched.records.items():
            waiting = reader.read_batch(records).usual()
            assert waiting is not None
            yield partition, list(waiting.entries)
    consumer.close()


def _fetched(consumer: Consumer, records: int) -> Iterator[Fetched]:
    while records:
        arrived = consumer.consume(min(records, FETCH_RECORDS), 0.005)
        fetched = Fetched()
        fetched.add(cast("list[Message]", arrived))
        records -= len(arrived)
        yield fetched


def _write(shared: SharedMemory, slot: int, entries: list[Entry], numbers: dict[str, int]) -> None:
    dues_ms, offsets, targets, bodies = zip(*entries, strict=True)
    of_targets = [numbers.setdefault(target, len(numbers)) for target in targets]
    table = np.array((dues_ms, offsets, of_targets, list(map(len, bodies))), np.int64).tobytes()
    content = b"".join((table, *bodies))
    assert len(content) <= SLOT_BYTES
    assert shared.buf is not None
    shared.buf[slot * SLOT_BYTES : slot * SLOT_BYTES + len(content)] = content


def _entries(shared: SharedMemory, batch: HandedOver, names: list[str]) -> list[Entry]:
    assert shared.buf is not None
    start, records = batch.slot * SLOT_BYTES, batch.records
    table = np.frombuffer(shared.buf, np.int64, 4 * records, start).reshape(4, records)
    dues_ms, offsets, targets, sizes = table.tolist()
    ends = np.cumsum(table[3]).tolist()
    bodies_start = start + table.nbytes
    del table
    bodies = bytes(shared.buf[bodies_start : bodies_start + ends[-1]])
    return [
        (due_ms, offset, names[target], bodies[end - size : end])
        for due_ms, offset, target, size, end in zip(
            dues_ms, offsets, targets, sizes, ends, strict=True
        )
    ]


def _us(cpu_s: float, source: Source) -> float:
    return cpu_s / source.records * 1e6


if __name__ == "__main__":
    typer.run(measure)
