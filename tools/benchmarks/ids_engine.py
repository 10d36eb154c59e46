"""Cost of storing ids: the proxy's id register beside RocksDB.

`python -m tools.benchmarks.ids_engine [ids]`. Batches have 2,048 new ids. With every eighth batch
256 pending ids are looked up and replaced. The newest `WAITING` ids stay pending, and older ids
are deleted. Each engine runs in its own process. RocksDB gets a list of the ids to delete. The
register finds these ids itself. Only the register also stores tombstones and links."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Protocol

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from storage.ids.register import open_register
from storage.store import Committed, Named
from tools.benchmarks.accounting import anonymous_bytes

BATCH_IDS = 2048
REPLACED_IDS = 256
REPLACED_EVERY = 8
WAITING = 1_000_000
DELAY_MS = 3_600_000
START_MS = 1_800_000_000_000
MEMTABLE_BYTES = 8 * 1024 * 1024
_NAMED = Struct("<qqqqqIB")


class Engine(Protocol):
    """Id store of one shard. Offsets are consecutive, and each id follows from its offset."""

    def put_if_new(self, ids: list[bytes], first_offset: int) -> bool: ...

    def find(self, ids: list[bytes]) -> int: ...

    def replace(self, ids: list[bytes], at: int) -> None: ...

    def maintain(self, next_offset: int, floor: int, forgotten: list[bytes]) -> None: ...

    def close(self) -> None: ...


class OurRegister:
    """`storage.ids` through the interface that the proxy uses."""

    def __init__(self, folder: Path) -> None:
        self._register = open_register(folder, Committed(START_MS, -1, 0, 0))

    def put_if_new(self, ids: list[bytes], first_offset: int) -> bool:
        offsets = range(first_offset, first_offset + len(ids))
        dues_ms = [START_MS + DELAY_MS + offset for offset in offsets]
        return self._register.put_if_new(ids, dues_ms, offsets, ["orders"] * len(ids))

    def find(self, ids: list[bytes]) -> int:
        return len(self._register.find(ids))

    def replace(self, ids: list[bytes], at: int) -> None:
        due_ms = START_MS + DELAY_MS + at
        for ident in ids:
            self._register.put(at, ident, Named(at, due_ms, at, at, due_ms, "orders"))

    def maintain(self, next_offset: int, floor: int, forgotten: list[bytes]) -> None:
        self._register.advance(START_MS + DELAY_MS + floor - 1, floor - 1)
        self._register.maintain(next_offset, floor)

    def close(self) -> None:
        self._register.close()


class Rocks:
    """RocksDB without a write-ahead log and with a Bloom filter of 10 bits a key."""

    def __init__(self, folder: Path) -> None:
        blocks = BlockBasedOptions()
        blocks.set_bloom_filter(10, block_based=False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(MEMTABLE_BYTES)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_max_background_jobs(2)
        self._db = Rdict(str(folder), options, access_type=AccessType.read_write())
        self._without_log = WriteOptions()
        self._without_log.disable_wal = True  # type: ignore[method-assign, assignment]

    def put_if_new(self, ids: list[bytes], first_offset: int) -> bool:
        if len(set(ids)) < len(ids) or self.find(ids):
            return False
        batch, pack = WriteBatch(raw_mode=True), _NAMED.pack
        put, due_ms = batch.put, START_MS + DELAY_MS + first_offset
        for at, ident in enumerate(ids):
            offset, fires_ms = first_offset + at, due_ms + at
            put(ident, pack(offset, fires_ms, offset, offset, fires_ms, 0, 0))
        self._db.write(batch, self._without_log)
        return True

    def find(self, ids: list[bytes]) -> int:
        values = self._db.get([*ids])
        assert isinstance(values, list)
        return len([_NAMED.unpack(value) for value in values if value is not None])

    def replace(self, ids: list[bytes], at: int) -> None:
        batch, due_ms = WriteBatch(raw_mode=True), START_MS + DELAY_MS + at
        for ident in ids:
            batch.put(ident, _NAMED.pack(at, due_ms, at, at, due_ms, 0, 0))
        self._db.write(batch, self._without_log)

    def maintain(self, next_offset: int, floor: int, forgotten: list[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for ident in forgotten:
            batch.delete(ident)
        self._db.write(batch, self._without_log)

    def close(self) -> None:
        self._db.close()


ENGINES: dict[str, Callable[[Path], Engine]] = {"ours": OurRegister, "rocksdb": Rocks}


class Clock:
    """CPU seconds: `loop_s` of the calling thread by name of the call, `process_s` of all threads.
    `longest_s` is the longest call. In the proxy, due records wait for such a call."""

    def __init__(self) -> None:
        self.loop_s: dict[str, float] = {}
        self.process_s = 0.0
        self.longest_s = 0.0

    def timed(self, name: str, call: Callable[[], object]) -> object:
        began_s, process_s = time.thread_time(), time.process_time()
        result = call()
        took_s = time.thread_time() - began_s
        self.process_s += time.process_time() - process_s
        self.loop_s[name] = self.loop_s.get(name, 0.0) + took_s
        self.longest_s = max(self.longest_s, took_s)
        return result


def ids_at(first_offset: int, count: int) -> list[bytes]:
    span = range(first_offset, first_offset + count)
    return [b"%016x-order-%013d" % (at * 0x9E3779B97F4A7C15 % 2**64, at) for at in span]


def measure(name: str, ids: int) -> dict[str, object]:
    clock = Clock()
    with tempfile.TemporaryDirectory() as home:
        engine = ENGINES[name](Path(home) / name)
        before = _anonymous_mb()
        for number, first in enumerate(range(0, ids, BATCH_IDS)):
            fresh, floor = ids_at(first, BATCH_IDS), max(0, first - WAITING)
            is_put = clock.timed("put_if_new", lambda: engine.put_if_new(fresh, first))  # noqa: B023
            assert is_put
            end = first + BATCH_IDS
            if number % REPLACED_EVERY == 0 and number:
                known = ids_at(max(floor, first - WAITING // 2), REPLACED_IDS)
                found = clock.timed("find", lambda: engine.find(known))  # noqa: B023
                assert found == REPLACED_IDS
                clock.timed("put", lambda: engine.replace(known, end))  # noqa: B023
            gone = ids_at(floor - BATCH_IDS, BATCH_IDS) if floor >= BATCH_IDS else []
            clock.timed("maintain", lambda: engine.maintain(end, floor, gone))  # noqa: B023
        memory_mb = _anonymous_mb() - before
        disk_mb = sum(f.stat().st_blocks for f in Path(home).rglob("*")) / 2048
        engine.close()
    return {
        "engine": name,
        "ids": ids,
        "loop_us_per_id": {k: round(v / ids * 1e6, 3) for k, v in clock.loop_s.items()},
        "loop_us": round(sum(clock.loop_s.values()) / ids * 1e6, 2),
        "process_us": round(clock.process_s / ids * 1e6, 2),
        "longest_call_ms": round(clock.longest_s * 1e3, 1),
        "memory_mb": round(memory_mb, 1),
        "disk_mb": round(disk_mb, 1),
    }


def _anonymous_mb() -> float:
    return anonymous_bytes(os.getpid()) / 2**20


def main() -> None:
    """Print one JSON line per engine. Optional arguments: the number of ids (default 4,000,000),
    and the name of one engine."""
    ids = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000
    if len(sys.argv) > 2:
        gc.disable()
        print(json.dumps(measure(sys.argv[2], ids)), flush=True)
        return
    for name in ENGINES:
        subprocess.run(
            [sys.executable, "-m", "tools.benchmarks.ids_engine", str(ids), name], check=True
        )


if __name__ == "__main__":
    main()
