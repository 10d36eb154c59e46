"""What each kind of store costs per record, side by side.

`python -m tests.benchmarks.storage_engine [records [targets]]`. CPU time of this process, with the
garbage collector off as in the worker's loop; neighbours on the machine still slow shared caches.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxy.requests.policy import DEFAULT_LEVELS
from proxy.requests.times import parse_levels
from storage.opening import open_store
from storage.options import Options, StoreKind
from storage.shard.checkpoint import CHECKPOINT
from storage.store import Committed, Entry, Store

START_MS = 1_800_000_000_000
LEVELS_MS = 7_200_001
"""The horizon of the delay levels, which marks the scenario with fixed delays."""
PUT_ENTRIES = 1000
PEEK_ENTRIES = 2000
BUDGET_ENTRIES = 4096
MEASURED: tuple[StoreKind, ...] = ("wheel", "rocksdb")
"""`levels` is the wheel."""
STEADY = ("put", "maintain", "due", "advance", "open and reclaim")
"""Calls that fall between two transactions: their longest is a delay of whatever is due."""


class Costs:
    """Seconds by name, and the longest single call of each."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = {}
        self.longest_s: dict[str, float] = {}

    def timed(self, name: str, call: Callable[[], object]) -> object:
        began_s = time.process_time()
        result = call()
        took_s = time.process_time() - began_s
        self.spent_s[name] = self.spent_s.get(name, 0.0) + took_s
        self.longest_s[name] = max(self.longest_s.get(name, 0.0), took_s)
        return result

    def report(self, name: str, kind: StoreKind, records: int) -> dict[str, object]:
        return {
            "scenario": name,
            "store": kind,
            "records": records,
            "us_per_record": {k: round(v / records * 1e6, 3) for k, v in self.spent_s.items()},
            "longest_call_ms": {k: round(v * 1e3, 2) for k, v in self.longest_s.items()},
        }


def made(records: int, horizon_ms: int, targets: int) -> list[Entry]:
    """Entries due at random within `horizon_ms` (at LEVELS: after one of 18 fixed delays, when
    ten arrive each millisecond), 240-byte bodies, so many targets in turn."""
    draw = random.Random(1)
    delays_ms = parse_levels(DEFAULT_LEVELS)
    dues_ms = (
        [at // 10 + draw.choice(delays_ms) for at in range(records)]
        if horizon_ms == LEVELS_MS
        else [draw.randrange(1, horizon_ms) for _ in range(records)]
    )
    return [(START_MS + dues_ms[at], at, f"t{at % targets}", b"v" * 240) for at in range(records)]


def fill(store: Store, entries: list[Entry], costs: Costs) -> None:
    """Put in batches, with a bounded piece of maintenance after each, as the pipeline does."""
    for start in range(0, len(entries), PUT_ENTRIES):
        batch = entries[start : start + PUT_ENTRIES]
        costs.timed("put", lambda batch=batch: store.put(batch))  # type: ignore[misc]
        after = batch[-1][1] + 1
        costs.timed("maintain", lambda after=after: store.maintain(after, BUDGET_ENTRIES))  # type: ignore[misc]
    costs.timed("flush", lambda: store.flush(len(entries)))


def drain(store: Store, records: int, horizon_ms: int, costs: Costs) -> None:
    """Let everything fall due, ten milliseconds at a time."""
    ended, now_ms = 0, START_MS
    while ended < records:
        now_ms += max(10, horizon_ms // 3000)
        while True:
            batch = costs.timed("due", lambda: store.due(now_ms, PEEK_ENTRIES).entries)  # noqa: B023
            assert isinstance(batch, list)
            if not batch:
                break
            ended += len(batch)
            costs.timed("advance", lambda: store.advance(*batch[-1][:2]))  # noqa: B023
        costs.timed("open and reclaim", lambda: store.maintain(records, BUDGET_ENTRIES))


def measure(
    name: str, kind: StoreKind, records: int, horizon_ms: int, targets: int
) -> dict[str, object]:
    """Fill, restart and drain one shard."""
    costs = Costs()
    entries = made(records, horizon_ms, targets)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "shard"
        store: Store = open_store(kind, folder, Committed(START_MS, -1, 0, 0), Options())
        fill(store, entries, costs)
        costs.timed("count", store.pending_by_target)
        store.close()
        at = Committed(START_MS, -1, 0, records)
        store = costs.timed(  # type: ignore[assignment]
            "open", lambda: open_store(kind, folder, at, Options())
        )
        checkpoint = folder / CHECKPOINT
        checkpoint_mb = round(checkpoint.stat().st_size / 1e6, 2) if checkpoint.exists() else None
        disk_mb = round(sum(f.stat().st_blocks for f in folder.rglob("*")) / 2048, 1)
        drain(store, records, horizon_ms, costs)
        assert store.pending() == 0
        store.close()
    return costs.report(name, kind, records) | {"disk_mb": disk_mb, "checkpoint_mb": checkpoint_mb}


def table(lines: list[dict[str, Any]]) -> str:
    """Microseconds a record by kind, as a Markdown table."""
    columns = list(lines[0]["us_per_record"])
    heads = ["scenario", "store", *columns, "longest call ms", "disk MB"]
    rows = [" | ".join(heads), " | ".join(["---"] * len(heads))]
    for line in lines:
        costs = [str(line["us_per_record"].get(column, 0)) for column in columns]
        longest = max(line["longest_call_ms"][name] for name in columns if name in STEADY)
        cells = [line["scenario"], line["store"], *costs, str(longest), str(line["disk_mb"])]
        rows.append(" | ".join(cells))
    return "\n".join(f"| {row} |" for row in rows)


def main() -> None:
    """One JSON line per scenario and kind, then a table; an argument scales the records."""
    gc.disable()
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    targets = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    lines: list[dict[str, Any]] = []
    for name, horizon_ms in (
        ("within 30 s", 30_000),
        ("within 10 min", 600_000),
        ("within 30 days", 30 * 86_400_000),
        ("one instant", 2),
        ("18 fixed delays", LEVELS_MS),
    ):
        for kind in MEASURED:
            lines.append(measure(name, kind, records, horizon_ms, targets))
            print(json.dumps(lines[-1]), flush=True)
    print(table(lines))


if __name__ == "__main__":
    main()
