"""Scenario reboot: the machine dies with millions of pending records, and the proxy starts from
disk."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tools.benchmarks.accounting import disk_bytes
from tools.benchmarks.restarts import PENDING_METRIC
from tools.benchmarks.scale import FAR_MS
from tools.overload.ledger import Account, Phase
from tools.overload.other_boot import drop_page_cache, forget_boot
from tools.overload.scene import Scene
from tools.overload.sizes import Sizes
from tools.overload.stage import PATIENCE_S, Figures, Stage
from tools.overload.taken_over import taken_over_since

WAITING, SAMPLE, PROBE = 0, 1, 2
PROBE_DELAY_MS = (1_000, 1_000)
PROBES_PER_S = 100
BYTES_PER_RECORD = 700
COUNTED_WITHIN_S = 60
WHOLE = Sizes().reboot_records


def scene(sizes: Sizes) -> Scene:
    """Return three phases: many records that stay pending, a sample that is due soon after the
    restart, and probes that are written after the restart."""
    phases = [
        Phase("waiting", sizes.reboot_records, is_awaited=False),
        Phase("sample", sizes.sample_records),
        Phase("probe", sizes.probe_records),
    ]
    return Scene(phases, sizes.reboot_records * BYTES_PER_RECORD)


def act(stage: Stage) -> Figures:
    sizes, proxy = stage.sizes, stage.made.proxy
    stage.send(WAITING, stage.load(WAITING, FAR_MS))
    stage.await_ingested()
    due_ms = int((time.time() + sizes.spread_s) * 1000)
    stage.send(SAMPLE, stage.load(SAMPLE, (0, 1_000), due_ms))
    stage.await_ingested()
    stage.kill()
    before = len(proxy.log)
    how = _lose_power(stage)
    folder_bytes = disk_bytes(proxy.data_dir)
    began_s, began_ms = stage.launch(), time.time() * 1000
    probes = replace(stage.load(PROBE, PROBE_DELAY_MS), rate_per_s=PROBES_PER_S)
    with stage.sending(PROBE, probes) as generator:
        ready_s = stage.wait_ready(began_s)
        generator.result(PATIENCE_S)
    stage.await_received(sizes.sample_records + sizes.probe_records, due_ms)
    pending = _pending(stage, sizes.reboot_records)
    taken_over = taken_over_since(proxy.log[before:])
    return {
        **how,
        "folder, GB": round(folder_bytes / 1e9, 2),
        "ready after the start, s": ready_s,
        "began_ms": began_ms,
        "pending afterwards": pending,
        "faults": {
            "lost pending records": max(0, sizes.reboot_records - pending),
            "sessions lost": taken_over.sessions_lost,
            "taken over again": max(0, taken_over.shards - stage.scene.partitions),
            "folders put aside": taken_over.put_aside,
        },
        "found in the folders": taken_over.local_pending,
    }


def figures(acted: Figures, account: Account) -> Figures:
    """Return the time to the first delivery of a probe, and the longest lateness of the sample."""
    probe, sample = account.came["probe"], account.came["sample"]
    began_ms = acted.pop("began_ms")
    first_s = None if probe.first_ms is None else round((probe.first_ms - began_ms) / 1000, 2)
    longest_s = round(sample.late.max_ms / 1000, 2)
    return acted | {
        "first delivery after the start, s": first_s,
        "longest lateness of the sample, s": longest_s,
    }


def _lose_power(stage: Stage) -> Figures:
    """Simulate a reboot. Cached pages are written to disk before they are dropped, because the
    proxy has synced nothing."""
    data_dir: Path = stage.made.proxy.data_dir
    files = forget_boot(data_dir)
    is_whole = stage.sizes.reboot_records >= WHOLE
    dropped = drop_page_cache([data_dir.parent.parent], whole_machine=is_whole)
    return {"page cache dropped": dropped, "files of another boot": files}


def _pending(stage: Stage, wanted: int) -> int:
    """Return the proxy's pending count once it is `wanted`. After COUNTED_WITHIN_S return the
    current count."""
    deadline_s = time.monotonic() + COUNTED_WITHIN_S
    while (found := stage.made.proxy.metric(PENDING_METRIC)) != wanted:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.2)
    return int(found or 0)
