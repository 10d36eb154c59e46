"""Load generator: it writes delayed records to the ingress topic, at a given rate or as fast as
possible."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from tools.benchmarks import clients
from tools.benchmarks.keys import write_keys
from tools.benchmarks.processes import Announce
from tools.benchmarks.topics import numbered

CHUNK_RECORDS = 2_000
TICK_S = 0.002
MOST_MESSAGE_BYTES = 8 << 20
LINGER_MS = 20
"""The generator waits this long to fill a request. With fewer requests the broker has more time for
the proxy."""


@dataclass(frozen=True, slots=True)
class Load:
    """Settings of a load. Each record has a random delay in the range `delay_ms`. The delay starts
    at `anchor_ms`. If `anchor_ms` is None, it starts when the record is sent. If `rate_per_s` is
    None, records are sent as fast as the broker takes them. Sending stops after `most_s` seconds.
    With `id_header` each record has its own id (38 bytes). If `targets` is above 1, the names of
    the targets end with numbers, and each target gets every `targets`th record."""

    bootstrap_servers: str
    ingress: str
    target: str
    count: int
    delay_ms: tuple[int, int]
    anchor_ms: int | None = None
    rate_per_s: float | None = None
    value_bytes: int = 200
    id_header: str | None = None
    first_sequence: int = 0
    seed: int = 1
    targets: int = 1
    most_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Loaded:
    """Summary of a load. `cpu_s` is the generator's CPU time. Sending lasted from `started_ms` to
    `ended_ms`. The broker had all records at `acknowledged_ms`."""

    count: int
    started_ms: float
    ended_ms: float
    acknowledged_ms: float
    cpu_s: float

    @property
    def offered_per_s(self) -> float:
        return self.count / max(self.acknowledged_ms - self.started_ms, 1.0) * 1000


def send(announce: Announce, load: Load, tell: Callable[[int], None] = lambda _: None) -> Loaded:
    """Send a whole load and wait until the broker has it. Run this function in a process of its
    own. `tell` is called repeatedly with the number of records sent up to then."""
    settings = {"linger.ms": LINGER_MS, "message.max.bytes": MOST_MESSAGE_BYTES}
    client = clients.producer(load.bootstrap_servers, settings)
    return send_through(client, announce, load, tell)


def send_through(
    client: Producer, announce: Announce, load: Load, tell: Callable[[int], None] = lambda _: None
) -> Loaded:
    gc.disable()
    client.list_topics(load.ingress, timeout=10)
    announce()
    cpu_before_s = time.process_time()
    started_s = time.time()
    sent = _send_all(load, client, started_s, tell)
    ended_s = time.time()
    clients.finish(client)
    cpu_s = time.process_time() - cpu_before_s
    return Loaded(sent, started_s * 1000, ended_s * 1000, time.time() * 1000, cpu_s)


def _send_all(load: Load, client: Producer, started_s: float, tell: Callable[[int], None]) -> int:
    rng = np.random.default_rng(load.seed)
    targets = [name.encode() for name in numbered(load.target, load.targets)]
    sent, ends_s = 0, started_s + load.most_s
    while sent < load.count and time.time() < ends_s:
        room = min(_allowed(load, started_s), load.count) - sent
        if room <= 0:
            time.sleep(TICK_S)
            continue
        size = min(room, CHUNK_RECORDS)
        _send_chunk(load, client, targets, load.first_sequence + sent, _dues_ms(load, rng, size))
        client.poll(0)
        sent += size
        tell(sent)
    return sent


def _allowed(load: Load, started_s: float) -> int:
    if load.rate_per_s is None:
        return load.count
    return int((time.time() - started_s) * load.rate_per_s) + 1


def _dues_ms(load: Load, rng: np.random.Generator, size: int) -> npt.NDArray[np.int64]:
    anchor_ms = time.time_ns() // 1_000_000 if load.anchor_ms is None else load.anchor_ms
    low_ms, high_ms = load.delay_ms
    return anchor_ms + rng.integers(low_ms, high_ms, size, endpoint=True)


def _send_chunk(
    load: Load,
    client: Producer,
    targets: Sequence[bytes],
    first_sequence: int,
    dues_ms: npt.NDArray[np.int64],
) -> None:
    value = bytes(load.value_bytes)
    in_turn = islice(cycle(targets), first_sequence % load.targets, None)
    for key, due_ms in zip(write_keys(first_sequence, dues_ms), dues_ms.tolist(), strict=True):
        headers: clients.Headers = [
            ("timer-topic", next(in_turn)),
            ("timer-deliver-at", b"%d" % due_ms),
        ]
        if load.id_header:
            headers.append((load.id_header, b"order-%s" % key.hex().encode()))
        try:
            client.produce(load.ingress, value, key, headers=headers)
        except BufferError:
            clients.wait_for_room(client)
            client.produce(load.ingress, value, key, headers=headers)
