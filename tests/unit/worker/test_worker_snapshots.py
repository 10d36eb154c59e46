"""Several workers behind one admin port: each sample names its worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from proxy.telemetry.metrics import Metrics
from proxy.telemetry.status import Status
from proxy.worker.run import SnapshotSender, WorkerSnapshots

LIMIT_S = 5.0


@contextmanager
def a_worker(snapshots: WorkerSnapshots, name: str, status: Status) -> Iterator[Metrics]:
    here, there = Pipe(duplex=False)
    snapshots.add(name, here)
    metrics = Metrics(lambda: status)
    sender = SnapshotSender(there, metrics.registry, lambda: status)
    yield metrics
    sender.close()


def scrape(snapshots: WorkerSnapshots) -> list[str]:
    registry = CollectorRegistry()
    registry.register(snapshots)
    return generate_latest(registry).decode().splitlines()


def test_samples_of_all_workers_are_shown_under_one_family_with_their_label() -> None:
    snapshots = WorkerSnapshots()
    for name, count in (("0", 3), ("1", 5)):
        with a_worker(snapshots, name, Status(assigned=True)) as metrics:
            metrics.count_deliveries(["orders"] * count, np.ones(count, np.int64))
    snapshots.receive(LIMIT_S)
    lines = scrape(snapshots)
    assert 'delay_proxy_deliveries_total{worker="0"} 3.0' in lines
    assert 'delay_proxy_deliveries_total{worker="1"} 5.0' in lines
    assert lines.count("# TYPE delay_proxy_deliveries_total counter") == 1
    assert [status.assigned for status in snapshots.statuses()] == [True, True]


def test_a_worker_that_has_not_spoken_yet_counts_as_unassigned() -> None:
    snapshots = WorkerSnapshots()
    here, there = Pipe(duplex=False)
    snapshots.add("0", here)
    assert [status.assigned for status in snapshots.statuses()] == [False]
    there.close()


def test_a_worker_that_has_hung_up_is_no_longer_shown() -> None:
    snapshots = WorkerSnapshots()
    with a_worker(snapshots, "0", Status(assigned=True)):
        pass
    snapshots.receive(LIMIT_S)
    assert len(snapshots.statuses()) == 1
    snapshots.receive(LIMIT_S)
    assert snapshots.statuses() == []
    assert [line for line in scrape(snapshots) if line] == []


def test_a_restarted_worker_is_shown_though_the_pipe_of_the_dead_one_ends_later() -> None:
    snapshots = WorkerSnapshots()
    dead, restarted = Pipe(duplex=False), Pipe(duplex=False)
    snapshots.add("0", dead[0])
    snapshots.add("0", restarted[0])
    dead[1].close()
    snapshots.receive(LIMIT_S)
    assert len(snapshots.statuses()) == 1
    restarted[1].close()
    snapshots.receive(LIMIT_S)
    assert snapshots.statuses() == []


def test_a_worker_whose_parent_has_gone_ends_without_noise() -> None:
    here, there = Pipe(duplex=False)
    sender = SnapshotSender(there, Metrics().registry, Status)
    here.close()
    sender.close()
