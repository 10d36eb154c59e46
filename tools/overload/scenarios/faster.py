"""Scenario faster: for minutes, more records are written than can be delivered. Then writing
stops."""

from __future__ import annotations

from dataclasses import replace

from tools.overload.ledger import Account, Phase
from tools.overload.scene import Scene
from tools.overload.sizes import Sizes
from tools.overload.stage import PATIENCE_S, Figures, Stage

DELAY_MS = (1_000, 1_000)
LOAD, AFTER = 0, 1
BYTES_PER_RECORD = 400
"""Disk space for one record with a small value, in both topics and in the proxy's folder."""


def scene(sizes: Sizes) -> Scene:
    """Return the load, and a later load that shows recovery."""
    most = sizes.faster_per_s * sizes.faster_s
    phases = [Phase("load", most), Phase("after", sizes.after_per_s * sizes.after_s)]
    return Scene(phases, most * BYTES_PER_RECORD, value_bytes=sizes.faster_value_bytes)


def act(stage: Stage) -> Figures:
    sizes = stage.sizes
    load = stage.load(LOAD, DELAY_MS)
    paced = replace(load, rate_per_s=sizes.faster_per_s, most_s=sizes.faster_s)
    with stage.sending(LOAD, paced) as generator:
        loaded = generator.result(PATIENCE_S)
    ended_s = stage.timeline.mark("load ends")
    in_time = stage.progress.received
    stage.say(f"{stage.made.name}: {loaded.count - in_time:,} of {loaded.count:,} are on their way")
    stage.await_received(loaded.count)
    stage.timeline.mark("drained")
    after = replace(stage.load(AFTER, DELAY_MS), rate_per_s=sizes.after_per_s)
    written = loaded.count + stage.send(AFTER, after).count
    stage.await_received(written)
    return {
        "written/s": round(loaded.offered_per_s),
        "delivered/s meanwhile": round(in_time / (loaded.ended_ms - loaded.started_ms) * 1000),
        "ended_s": ended_s,
        "began_ms": stage.timeline.began_ms,
        "most on their way": max(
            (s.written - s.received for s in stage.timeline.samples), default=0
        ),
    }


def figures(acted: Figures, account: Account) -> Figures:
    load, after = account.came["load"].late, account.came["after"].late
    ended_ms = acted.pop("began_ms") + acted.pop("ended_s") * 1000
    drained_s = ((account.came["load"].last_ms or ended_ms) - ended_ms) / 1000
    return {
        **acted,
        "longest lateness, s": round(load.max_ms / 1000, 1),
        "drained after the load's end, s": round(drained_s, 1),
        "lateness afterwards, p50 / p99, ms": f"{after.p50_ms:g} / {after.p99_ms:g}",
    }
