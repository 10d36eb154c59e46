"""Figures of a soak test for the table and the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from resource import RUSAGE_SELF, getrusage
from typing import Any, Final

import numpy as np

from tools.soak.lane import Done
from tools.soak.soak import Soak
from tools.soak.starts import Start

MIB: Final = 1 << 20
BUCKET_S: Final = 10
LOCAL_STATE_GONE: Final = frozenset({"lose disk", "other store"})
"""After these faults the shards are rebuilt from the broker. A damaged file may also cause a
rebuild, but does not always."""
MAY_BE_GONE: Final = LOCAL_STATE_GONE | {"cut file", "flip bits"}


def figures_of(found: Soak) -> dict[str, Any]:
    peaks: dict[str, int] = {}
    for sample in found.samples:
        peaks[sample.proxy] = max(peaks.get(sample.proxy, 0), sample.resident_bytes)
    return {
        "seed": found.seed,
        "minutes": found.minutes,
        "records_sent": sum(found.sent.values()),
        "records_judged": found.tally.records,
        "faults": len(found.done),
        "lateness_ms": _percentiles(found.tally.lateness_ms),
        "first_delivery_s": _first_deliveries(found),
        "after_a_lost_disk": _rebuilt(found.starts),
        "peak_resident_mib": {name: size // MIB for name, size in peaks.items()},
        "judged_s": {name: round(seconds) for name, seconds in found.judged_s.items()},
        "judge_peak_mib": getrusage(RUSAGE_SELF).ru_maxrss // 1024,
        "sent": found.sent,
        "ends": dict(found.tally.counts),
        "faults_by_kind": dict(sorted(found.faults.items())),
        "lateness": _lateness_over_time(found),
        "resident": [(round(s.at_s), s.proxy, s.resident_bytes) for s in found.samples],
        "starts": [start._asdict() for start in found.starts],
        "done": [one._asdict() for one in found.done],
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not len(values):
        return {}
    p50, p99, most = np.percentile(np.asarray(values), [50, 99, 100]).tolist()
    return {"count": len(values), "p50": round(p50, 3), "p99": round(p99, 3), "max": round(most, 3)}


def _first_deliveries(found: Soak) -> dict[str, dict[str, float]]:
    """Return the times to the first delivery after SIGKILL. `alone` leaves out starts during a
    fault of a broker or the network."""
    local = [start for start in found.starts if start.fault not in MAY_BE_GONE]
    others = [done for done in found.done if done.lane == "brokers"]
    alone = [start for start in local if not _is_disturbed(start, others)]
    return {
        "with local state": _percentiles([start.first_delivery_s for start in local]),
        "with local state, alone": _percentiles([start.first_delivery_s for start in alone]),
    }


def _is_disturbed(start: Start, others: Sequence[Done]) -> bool:
    end_s = start.at_s + start.first_delivery_s
    return any(one.began_s < end_s and one.began_s + one.took_s > start.at_s for one in others)


def _rebuilt(starts: Sequence[Start]) -> dict[str, Any]:
    lost = [start for start in starts if start.fault in LOCAL_STATE_GONE]
    return {
        "records": _percentiles([start.read_again for start in lost]),
        "caught_up_s": _percentiles([start.caught_up_s for start in lost]),
        "first_delivery_s": _percentiles([start.first_delivery_s for start in lost]),
    }


def _lateness_over_time(found: Soak) -> list[tuple[float, ...]]:
    """Return (seconds, p50, p99 and maximum in ms) for arrivals of each ten seconds."""
    at_s = (np.array(found.tally.delivered_ms, np.int64) - found.began_ms) // 1000
    late_ms = np.array(found.tally.lateness_ms, np.int64)
    order = np.argsort(at_s, kind="stable")
    buckets, starts = np.unique(at_s[order] // BUCKET_S, return_index=True)
    parts = np.split(late_ms[order], starts[1:])
    return [
        (int(bucket) * BUCKET_S, *map(float, np.percentile(part, [50, 99, 100])))
        for bucket, part in zip(buckets, parts, strict=True)
    ]
