"""Restarts, timed with probe records that are due while the proxy is down."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from tools.benchmarks import topics
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.loads import Load, send
from tools.benchmarks.peak import AnonymousPeak
from tools.benchmarks.processes import Job
from tools.benchmarks.reader import Arrivals, ReadOrder, read
from tools.benchmarks.trial import Trial
from tools.benchmarks.verdict import Verdict, judge

SLOWEST_PER_S = 10_000
PROBE_RECORDS = 200
PROBE_LEAD_MS = 5_000
PENDING_METRIC = "delay_proxy_shard_pending_records"


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart. `first_delivery_s` is the time from the start of the process to the first
    received record. `pending_after` is the proxy's own count of pending records, None if unknown.
    This count is never too low. It may include records that ended just before a kill."""

    how: str
    first_delivery_s: float
    pending_after: int | None
    peak_anonymous_mb: float
    verdict: Verdict


def restart(made: Trial, how: str, stop: Callable[[], None], waiting: int) -> Restart:
    """Stop the proxy, let probe records fall due, start the proxy and wait for the probes.
    `waiting` is the number of records that are still pending after that."""
    made.world.say(f"{made.name}: restart, {how}")
    probe = replace(
        made.load(PROBE_RECORDS, (0, 0), int(time.time() * 1000) + PROBE_LEAD_MS),
        target=f"{made.name}.probe-{how.replace(' ', '-')}",
    )
    topics.create(made.world.bootstrap_servers, probe.target)
    with Job(send, probe) as generator:
        generator.result(60)
    made.wait_until_ingested(60)
    stop()
    _wait_until_due(probe)
    return _come_back(made, how, probe, waiting)


def _wait_until_due(probe: Load) -> None:
    due_ms = probe.anchor_ms or 0
    time.sleep(max(due_ms / 1000 - time.time(), 0) + 0.1)


def _come_back(made: Trial, how: str, probe: Load, waiting: int) -> Restart:
    patience_s = 60 + waiting / SLOWEST_PER_S
    order = ReadOrder(made.world.bootstrap_servers, probe.target, probe.count, patience_s)
    with Job(read, order) as reader:
        reader.wait_ready()
        started_ms = time.time() * 1000
        made.proxy.start()
        with closing(AnonymousPeak(made.proxy.pid)) as peak:
            arrivals = reader.result(patience_s + 30)
            pending = _pending_after(made, waiting)
    return Restart(
        how=how,
        first_delivery_s=_first_delivery_s(arrivals, started_ms, made.proxy.log_tail()),
        pending_after=pending,
        peak_anonymous_mb=round(peak.bytes / 1e6, 1),
        verdict=judge(arrivals, probe),
    )


def _first_delivery_s(arrivals: Arrivals, started_ms: float, log_tail: str) -> float:
    first_ms = float(arrivals.received_ms.min(initial=float("inf")))
    if first_ms == float("inf"):
        raise BenchmarkError(f"No probe came after the restart. The proxy's log:\n{log_tail}")
    return round((first_ms - started_ms) / 1000, 2)


def _pending_after(made: Trial, waiting: int) -> int | None:
    """Return the proxy's pending count once it reaches `waiting`, or after 10 s."""
    deadline_s = time.monotonic() + 10
    while (pending := made.proxy.metric(PENDING_METRIC)) is None or pending < waiting:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.2)
    return None if pending is None else int(pending)
