"""An unwritable target partition delays its own records, and no others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.clock import wall_clock_ms
from tests.support.installation.cluster import Cluster, running_cluster
from tests.support.installation.clustered import ClusteredInstallation
from tests.support.installation.load import Load
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.oracle.ends import Ends
from tests.support.records import Outgoing

pytestmark = [pytest.mark.integration, pytest.mark.faults]

LEVELS = " ".join(["5s"] * 6 + ["20s"] * 12)
"""Sixteen attempts take four minutes, far longer than the node is away."""
RULES = Rules(levels_ms=levels_ms(LEVELS))
PER_SECOND = 60
BEFORE_S, OUTAGE_S, AFTER_S = 4, 60, 2
DUE_FROM_S, DUE_TO_S = 25, 35
"""Records due in these seconds fall into the outage, and none of them can be delivered in it."""
JUDGED_WITHIN_S = 300
FIRST = 60
"""Records that show the proxy that their targets are healthy. It asks again after a minute."""


@dataclass
class Loss:
    """Result of a run in which a node was lost: the ends of all records, and the log."""

    lost: str
    short: str
    mixed: str
    others: list[str]
    sent: int
    went_ms: int
    came_ms: int
    ends: Ends
    log: str

    def set_aside(self, target: str) -> set[str]:
        outcomes = [o for found in self.ends.outcomes.values() for o in found]
        details = [str(o["detail"]).partition("; publish attempt")[0] for o in outcomes]
        begin = f"partition-unavailable: {target}"
        return {detail.removeprefix(begin) for detail in details if detail.startswith(begin)}

    def arrived_ms(self, targets: list[str]) -> list[int]:
        from_ms, to_ms = (self.went_ms + s * 1_000 for s in (DUE_FROM_S, DUE_TO_S))
        placed = [p for found in self.ends.deliveries.values() for p in found]
        timed = [
            (int(p.record.header("timer-due") or b""), p.record.timestamp_ms)
            for p in placed
            if p.topic in targets
        ]
        return [at_ms for due_ms, at_ms in timed if from_ms <= due_ms < to_ms]


def _lose_a_node(cluster: Cluster, folder: Path) -> Loss:
    installation = ClusteredInstallation(cluster, folder)
    try:
        spare, steady = installation.spare, installation.steady
        lost = installation.target_on("lost", [[spare]])
        all_three = {"min.insync.replicas": "3"}
        short = installation.target_on("short", [[*steady, spare]], all_three)
        mixed = installation.target_on("mixed", [[steady[0]], [spare], [steady[1]]])
        others = [installation.target_on(f"other-{n}", [[*steady, spare]] * 2) for n in (1, 2)]
        installation.create_own_topics()
        patient = installation.kafka(**{"session.timeout.ms": "30000"})
        proxy = installation.proxy(levels=LEVELS, retry={"first_level": 1}, kafka=patient)
        proxy.start_ready()
        installation.send(_first_records([lost, short, mixed]))
        installation.await_ends(FIRST)
        with Load(installation, others, per_second=PER_SECOND) as steady_load:
            time.sleep(BEFORE_S)
            went_ms = wall_clock_ms()
            cluster.kill(spare)
            # No load starts before the node is gone. Kafka may never end a transaction whose
            # partition loses its leader before the end is written (KAFKA-20734).
            with Load(installation, [lost, short, mixed], per_second=PER_SECOND) as load:
                time.sleep(OUTAGE_S)
                came_ms = wall_clock_ms()
                cluster.start(spare)
                time.sleep(AFTER_S)
        ends = installation.judge(JUDGED_WITHIN_S, RULES)
        log = proxy.whole_log
        sent = FIRST + steady_load.sent + load.sent
        return Loss(lost, short, mixed, others, sent, went_ms, came_ms, ends, log)
    finally:
        installation.close()


def _first_records(targets: list[str]) -> Iterator[Outgoing]:
    for number in range(FIRST):
        target = targets[number % len(targets)]
        yield Outgoing(b"key-%d" % number, b"first", [("timer-topic", target.encode())])


@pytest.fixture(scope="module")
def loss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loss]:
    folder = tmp_path_factory.mktemp("unavailable")
    with running_cluster(folder / "cluster") as cluster:
        yield _lose_a_node(cluster, folder)


def test_every_record_is_delivered_once_and_none_early(loss: Loss) -> None:
    assert loss.ends.counts["delivered"] == loss.sent
    assert set(loss.ends.counts) == {"delivered", "requeued"}


def test_records_of_a_partition_without_a_leader_are_set_aside(loss: Loss) -> None:
    assert loss.set_aside(loss.lost) == {"/0 has no leader"}
    assert loss.set_aside(loss.mixed) == {"/1 has no leader"}


def test_records_of_a_partition_short_of_replicas_are_set_aside(loss: Loss) -> None:
    assert loss.set_aside(loss.short) == {
        "/0 has 2 of 3 replicas in sync, and min.insync.replicas is 3"
    }


def test_records_of_all_others_arrive_meanwhile_and_no_session_is_lost(loss: Loss) -> None:
    arrived_ms = loss.arrived_ms(loss.others)
    assert len(arrived_ms) > PER_SECOND
    assert max(arrived_ms) < loss.came_ms
    assert all(loss.set_aside(other) == set() for other in loss.others)
    assert "session lost" not in loss.log


def test_transaction_that_was_held_by_them_is_given_up(loss: Loss) -> None:
    assert "produced records do not arrive" in loss.log


def test_operator_is_told_once_of_each_partition(loss: Loss) -> None:
    for topic in (loss.lost, loss.short, loss.mixed):
        lines = [line for line in loss.log.splitlines() if topic in line]
        assert sum('"partition unavailable"' in line for line in lines) == 1
        assert sum('"partitions available again"' in line for line in lines) == 1
