"""Lateness of records for other targets when one target loses a node that it needs. The node holds
the target's only replica, or one of three replicas that must all be in sync. `python -m
tools.benchmarks.lost_leader` takes three minutes, with three brokers on this machine."""

import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import numpy as np

from proxy.clock import wall_clock_ms
from proxy.embedded.jars import kafka_version
from tests.support.installation.cluster import Cluster, running_cluster
from tests.support.installation.clustered import ClusteredInstallation
from tests.support.installation.load import Load
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.oracle.ends import Ends
from tools.benchmarks.machine import describe

PER_SECOND: Final = 300
BEFORE_S, AWAY_S = 15, 40
ON_TIME_MS: Final = 1_000
LEVELS: Final = " ".join(["10s"] * 18)
JUDGED_WITHIN_S: Final = 300
SHOWN_S: Final = 20


def measure(what: str, folder: Path) -> dict[int, int]:
    """Return the p99 lateness (ms) of records for other targets, by second after the loss."""
    with running_cluster(folder / "cluster") as cluster:
        installation = ClusteredInstallation(cluster, folder)
        try:
            return _run(what, cluster, installation)
        finally:
            installation.close()


def _run(what: str, cluster: Cluster, installation: ClusteredInstallation) -> dict[int, int]:
    spare, steady = installation.spare, installation.steady
    if what == "no leader":
        lost = installation.target_on("lost", [[spare]])
    else:
        config = {"min.insync.replicas": "3"}
        lost = installation.target_on("lost", [[*steady, spare]], config)
    others = [installation.target_on(f"other-{n}", [[*steady, spare]] * 2) for n in range(4)]
    installation.create_own_topics()
    proxy = installation.proxy(levels=LEVELS, retry={"first_level": 1})
    proxy.start_ready()
    with Load(installation, others, per_second=PER_SECOND, longest_delay_ms=1_000):
        time.sleep(BEFORE_S)
        cluster.kill(spare)
        went_ms = wall_clock_ms()
        with Load(installation, [lost], per_second=PER_SECOND // 5, longest_delay_ms=1_000):
            time.sleep(AWAY_S)
        cluster.start(spare)
    ends = installation.judge(JUDGED_WITHIN_S, Rules(levels_ms=levels_ms(LEVELS)))
    return _by_second(ends, set(others), went_ms)


def _by_second(ends: Ends, targets: set[str], went_ms: int) -> dict[int, int]:
    late_ms: dict[int, list[int]] = defaultdict(list)
    for found in ends.deliveries.values():
        for placed in found:
            if placed.topic in targets:
                due_ms = int(placed.record.header("timer-due") or b"0")
                second = (due_ms - went_ms) // 1_000
                late_ms[second].append(placed.record.timestamp_ms - due_ms)
    return {second: int(np.percentile(late, 99)) for second, late in sorted(late_ms.items())}


def _on_time_again_s(by_second: dict[int, int]) -> int:
    """Return the first second after the last late second. Only seconds while the node is away are
    judged. A second is late if its p99 exceeds ON_TIME_MS."""
    late = [s for s, p99_ms in by_second.items() if 0 <= s < AWAY_S and p99_ms > ON_TIME_MS]
    return max(late, default=-1) + 1


def main() -> None:
    print(describe(kafka_version()))
    for what in ("no leader", "too few replicas"):
        with tempfile.TemporaryDirectory(prefix="lost-leader-") as folder:
            by_second = measure(what, Path(folder))
        shown = {s: by_second.get(s) for s in range(-2, SHOWN_S)}
        print(f"{what}: p99 of the others under {ON_TIME_MS} ms from second", end=" ")
        print(f"{_on_time_again_s(by_second)} on; by second: {shown}", flush=True)


if __name__ == "__main__":
    main()
