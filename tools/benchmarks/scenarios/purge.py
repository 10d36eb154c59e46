"""Scenario purge: a million pending records are purged beside a light stream. It measures the time
until each purged record has its outcome, and the lateness of the stream."""

import json
import time
from dataclasses import dataclass, replace

from tools.benchmarks import topics
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.loads import send
from tools.benchmarks.processes import Job
from tools.benchmarks.reader import read
from tools.benchmarks.restarts import PENDING_METRIC
from tools.benchmarks.scale import FAR_MS
from tools.benchmarks.trial import Trial, World, trial
from tools.benchmarks.verdict import Lateness, Verdict, judge, lateness

PATIENCE_S = 900
LOOK_S = 0.25
UNDER_WAY_METRIC = "delay_proxy_purge_under_way"


@dataclass(frozen=True, slots=True)
class Purged:
    """Result of the scenario. `before` and `meanwhile` are the stream's lateness before and during
    the purge. After `applied_s` the call returned, and no purged record is delivered any more.
    After `told_s` the proxy has written an outcome for each purged record."""

    records: int
    applied_s: float
    told_s: float
    before: Lateness
    meanwhile: Lateness
    verdict: Verdict


def measure(world: World) -> Purged:
    world.say(f"purge: {world.scale.purged_records} records beside {world.scale.light_rate}/s")
    with trial(world, "purge") as made:
        _load(made)
        return _measure(made)


def _load(made: Trial) -> None:
    load = made.load(made.world.scale.purged_records, FAR_MS)
    load = replace(load, target=f"{made.name}.purged")
    topics.create(made.world.bootstrap_servers, load.target)
    with Job(send, load) as generator:
        generator.result(PATIENCE_S)
    made.wait_until_ingested(PATIENCE_S)


def _measure(made: Trial) -> Purged:
    scale = made.world.scale
    count = scale.light_rate * scale.purge_stream_s
    load = replace(made.load(count, scale.light_delay_ms), rate_per_s=scale.light_rate)
    with Job(read, made.order(count, PATIENCE_S)) as reader:
        reader.wait_ready()
        with Job(send, load) as generator:
            time.sleep(scale.light_s / 3)
            began_ms = time.time() * 1000
            applied_s = _purge(made)
            told_s = _wait_until_told(made, count, began_ms / 1000)
            loaded = generator.result(PATIENCE_S)
        arrivals = reader.result(PATIENCE_S)
    if began_ms + told_s * 1000 > loaded.ended_ms:
        raise BenchmarkError(
            f"The purge took {told_s:.0f} s, longer than the stream beside it: this machine needs "
            "a longer purge_stream_s (tools/benchmarks/scale.py)."
        )
    return Purged(
        scale.purged_records,
        round(applied_s, 2),
        round(told_s, 1),
        lateness(arrivals, loaded.started_ms, began_ms),
        lateness(arrivals, began_ms, began_ms + told_s * 1000),
        judge(arrivals, load),
    )


def _purge(made: Trial) -> float:
    started_s = time.monotonic()
    asked = {"targets": f"{made.name}.purged", "dry_run": False}
    status, answer = made.proxy.post("/api/v1/purges", asked, PATIENCE_S)
    if status != 200 or json.loads(answer)["records"] != made.world.scale.purged_records:
        raise BenchmarkError(f"The call that purges returned status {status}: {answer}")
    return time.monotonic() - started_s


def _wait_until_told(made: Trial, streamed: int, began_s: float) -> float:
    """Return the seconds until only the stream's records are pending and no purge runs."""
    while not (
        _is_at_most(made, PENDING_METRIC, streamed) and _is_at_most(made, UNDER_WAY_METRIC, 0)
    ):
        if time.time() > began_s + PATIENCE_S:
            raise BenchmarkError(f"The purge does not end:\n{made.proxy.log_tail()}")
        time.sleep(LOOK_S)
    return time.time() - began_s


def _is_at_most(made: Trial, metric: str, bound: int) -> bool:
    """Return whether the metric is at most `bound`, False if it is missing."""
    value = made.proxy.metric(metric)
    return value is not None and value <= bound
