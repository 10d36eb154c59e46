"""Scenario pending: memory, disk and restarts with millions of pending records."""

import shutil
import signal
import time
from contextlib import closing
from dataclasses import dataclass

from tools.benchmarks.accounting import anonymous_bytes, disk_bytes
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.lister import Lister
from tools.benchmarks.loads import send
from tools.benchmarks.peak import AnonymousPeak
from tools.benchmarks.processes import Job
from tools.benchmarks.restarts import Restart, restart
from tools.benchmarks.scale import FAR_MS
from tools.benchmarks.trial import Trial, World, trial

LEAST_PATIENCE_S = 1_800
PATIENT_RECORDS_PER_S = 20_000
"""Slowest rate at which a machine may load the records."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Cost of many pending records. Memory is the proxy's, without mapped files.
    `listing_anonymous_mb` is the peak during a listing. `rebuilt_per_s` is measured from a start
    with an empty folder to the first delivery. `lost` is the number of records that are missing in
    the proxy's own counts after the restarts."""

    records: int
    value_bytes: int
    loaded_per_s: float
    anonymous_mb: float
    peak_anonymous_mb: float
    listing_anonymous_mb: float
    pages_per_s: float
    disk_mb: float
    disk_bytes_per_record: float
    restarts: list[Restart]
    rebuilt_per_s: float
    lost: int


def measure(world: World) -> Pending:
    return run_once(world, "pending")


def run_once(world: World, name: str) -> Pending:
    world.say(f"{name}: {world.scale.pending_records} records due far away")
    with trial(world, name) as made:
        return _measure(made)


def _measure(made: Trial) -> Pending:
    count = made.world.scale.pending_records
    with closing(AnonymousPeak(made.proxy.pid)) as peak:
        loaded_s = _load(made, count)
        time.sleep(made.world.scale.settle_s)
    settled_bytes, held_bytes = anonymous_bytes(made.proxy.pid), disk_bytes(made.proxy.data_dir)
    listing_bytes, pages_per_s = _list(made)
    restarts = [
        restart(made, "clean stop", made.proxy.stop, count),
        restart(made, "killed", lambda: made.proxy.stop(signal.SIGKILL), count),
        restart(made, "disk lost", lambda: _lose_disk(made), count),
    ]
    return Pending(
        records=count,
        value_bytes=made.world.scale.value_bytes,
        loaded_per_s=round(count / loaded_s),
        anonymous_mb=round(settled_bytes / 1e6, 1),
        peak_anonymous_mb=round(peak.bytes / 1e6, 1),
        listing_anonymous_mb=round(listing_bytes / 1e6, 1),
        pages_per_s=pages_per_s,
        disk_mb=round(held_bytes / 1e6, 1),
        disk_bytes_per_record=round(held_bytes / count, 1),
        restarts=restarts,
        rebuilt_per_s=round(count / restarts[-1].first_delivery_s),
        lost=sum(_lost(back, count) for back in restarts),
    )


def _load(made: Trial, count: int) -> float:
    patience_s = max(LEAST_PATIENCE_S, count / PATIENT_RECORDS_PER_S)
    started_s = time.monotonic()
    with Job(send, made.load(count, FAR_MS)) as generator:
        generator.result(patience_s)
    made.wait_until_ingested(patience_s)
    return time.monotonic() - started_s


def _list(made: Trial) -> tuple[int, float]:
    """Return the memory peak during a listing and the pages per second. Return zeros if
    `listing_s` is 0."""
    if not made.world.scale.listing_s:
        return 0, 0.0
    with closing(AnonymousPeak(made.proxy.pid)) as peak, Lister(made.proxy) as lister:
        time.sleep(made.world.scale.listing_s)
    return peak.bytes, lister.pages_per_s


def _lost(back: Restart, waiting: int) -> int:
    if back.pending_after is None:
        raise BenchmarkError(
            f"After the restart ({back.how}) the proxy has no count of pending records."
        )
    return max(0, waiting - back.pending_after)


def _lose_disk(made: Trial) -> None:
    made.proxy.stop()
    shutil.rmtree(made.proxy.data_dir)
