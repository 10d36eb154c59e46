"""Lateness of records while instances start, stop and restart in an orderly way. `python -m
tools.benchmarks.handover` takes three minutes, with one broker on this machine. See `--help`. The
lateness is the broker's append time minus the due time. A record belongs to the last step that
began before its due."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from proxy.clock import wall_clock_ms
from proxy.embedded.jars import kafka_version
from tests.support.installation.broker import any_broker
from tests.support.installation.installation import Installation
from tests.support.installation.load import Load
from tests.support.waiting import wait_for
from tools.benchmarks.machine import describe

PARTITIONS, INSTANCES = 6, ("a", "b", "c")
PER_SECOND, LONGEST_DELAY_MS = 200, 2_000
QUIET_S = 5.0
SHARED_WITHIN_S = 120


class Steps:
    """Steps of one group of instances, and the time at which each step began."""

    def __init__(self, installation: Installation, workers: int) -> None:
        kafka = installation.kafka(**{"session.timeout.ms": "10000"})
        self._all = {
            name: installation.proxy(name, workers=workers, kafka=kafka) for name in INSTANCES
        }
        self.began_ms: dict[str, list[int]] = {}

    def shared_by(self, names: Sequence[str]) -> None:
        def is_shared() -> bool:
            counts = [self._all[name].shards() for name in names]
            return sum(counts) == PARTITIONS and min(counts) > 0

        wait_for(is_shared, SHARED_WITHIN_S, f"all partitions with {names}")

    @contextmanager
    def step(self, name: str, then: Sequence[str]) -> Iterator[None]:
        self.began_ms.setdefault(name, []).append(wall_clock_ms())
        yield
        self.shared_by(then)
        time.sleep(QUIET_S)

    def run(self, rounds: int) -> None:
        others = INSTANCES[1:]
        for _ in range(rounds):
            with self.step("1 to 3", INSTANCES):
                for name in others:
                    self._all[name].start()
            for name in INSTANCES:
                with self.step("restart, one by one", INSTANCES):
                    assert self._all[name].stop() == 0
                    self._all[name].start()
            with self.step("3 to 2", INSTANCES[:2]):
                assert self._all[others[-1]].stop() == 0
            with self.step("2 to 1", INSTANCES[:1]):
                assert self._all[others[0]].stop() == 0
        self.began_ms["end"] = [wall_clock_ms()]

    def start_first(self) -> None:
        self._all[INSTANCES[0]].start_ready()
        self.shared_by(INSTANCES[:1])


def measure(folder: Path, workers: int, rounds: int) -> dict[str, list[float]]:
    """Return each step's longest lateness in seconds. Check that every record ended once."""
    with any_broker(folder / "broker") as bootstrap:
        installation = Installation(bootstrap, folder, PARTITIONS)
        try:
            targets = [installation.target(partitions=4)]
            steps = Steps(installation, workers)
            steps.start_first()
            load = {"per_second": PER_SECOND, "longest_delay_ms": LONGEST_DELAY_MS}
            with Load(installation, targets, **load):
                time.sleep(QUIET_S)
                steps.run(rounds)
            ends = installation.judge()
        finally:
            installation.close()
    placed = [one.record for found in ends.deliveries.values() for one in found]
    due_ms = np.array([int(record.header("timer-due") or b"0") for record in placed])
    late_ms = np.array([record.timestamp_ms for record in placed]) - due_ms
    moments = sorted(at for began in steps.began_ms.values() for at in began)
    return {
        name: [
            float(late_ms[(due_ms >= at) & (due_ms < moments[moments.index(at) + 1])].max() / 1000)
            for at in began
        ]
        for name, began in steps.began_ms.items()
        if name != "end"
    }


def main(
    workers: Annotated[int, typer.Option(help="Worker processes of each instance.")] = 1,
    rounds: Annotated[int, typer.Option(help="How often to run all steps.")] = 2,
) -> None:
    """Print the longest lateness of each step."""
    print(describe(kafka_version()))
    with tempfile.TemporaryDirectory(prefix="handover-") as folder:
        for name, found in measure(Path(folder), workers, rounds).items():
            print(f"{name}: latest record {', '.join(f'{late:.2f}' for late in found)} s")


if __name__ == "__main__":
    typer.run(main)
