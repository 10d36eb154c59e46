"""Test entries for a store, made batch by batch to save memory."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from proxy.protocol.body import stub
from proxy.protocol.policy import DEFAULT_LEVELS
from proxy.protocol.times import parse_levels
from storage.store import Column, Entry

START_MS = 1_800_000_000_000
BATCH_ENTRIES, BATCH_BYTES = 1_000, 1 << 21
POOL_BYTES, STRIDE = 1 << 22, 4_099
ARRIVALS_PER_MS = 10


@dataclass(frozen=True, slots=True)
class Wanted:
    records: int
    body_bytes: int
    delay_ms: tuple[int, int] | None
    targets: int
    has_stubs: bool


def batches(wanted: Wanted) -> Iterator[list[Entry]]:
    draw = np.random.default_rng(1)
    size = max(1, min(BATCH_ENTRIES, BATCH_BYTES // wanted.body_bytes))
    pool = random.Random(1).randbytes(POOL_BYTES)
    for first in range(0, wanted.records, size):
        offsets = range(first, min(first + size, wanted.records))
        dues_ms = START_MS + _delays_ms(wanted, offsets, draw)
        targets = [f"t{offset % wanted.targets}" for offset in offsets]
        bodies = [_body(pool, offset, wanted.body_bytes) for offset in offsets]
        if wanted.has_stubs:
            bodies = [stub(body) for body in bodies]
        yield list(zip(dues_ms.tolist(), offsets, targets, bodies, strict=True))


def idents(offsets: range) -> list[bytes]:
    """Return one id per offset. Ids have 36 bytes, like UUIDs, and do not follow the offsets'
    order."""
    return [b"%016x-order-%013d" % (at * 0x9E3779B97F4A7C15 % 2**64, at) for at in offsets]


def _delays_ms(wanted: Wanted, offsets: range, draw: np.random.Generator) -> Column:
    if wanted.delay_ms is None:
        levels_ms = np.array(parse_levels(DEFAULT_LEVELS))
        arrivals_ms = np.arange(offsets.start, offsets.stop) // ARRIVALS_PER_MS
        delays_ms: Column = arrivals_ms + draw.choice(levels_ms, len(offsets))
        return delays_ms
    low_ms, high_ms = wanted.delay_ms
    return draw.integers(low_ms, high_ms, len(offsets), endpoint=True)


def _body(pool: bytes, offset: int, size_bytes: int) -> bytes:
    """Return a body that is half random and half zeros. RocksDB compresses it to half its size."""
    random_bytes = size_bytes // 2
    at = offset * STRIDE % (POOL_BYTES - random_bytes)
    return pool[at : at + random_bytes] + bytes(size_bytes - random_bytes)
