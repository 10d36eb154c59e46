"""Several processes share the ingress, join, leave, die and freeze. Nothing is done twice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.load import Load
from tests.support.oracle.auditor import Auditor
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

PARTITIONS = 4
REBALANCED_WITHIN_S = 180


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka, tmp_path, PARTITIONS)
    yield made
    made.close()


def _shared(installation: Installation, *instances: str) -> None:
    def is_shared() -> bool:
        counts = [installation.proxy(name).shards() for name in instances]
        return sum(counts) == PARTITIONS and min(counts) > 0

    wait_for(is_shared, REBALANCED_WITHIN_S, f"all partitions with {instances}")


def test_one_joins_and_leaves_and_another_joins_and_is_killed(
    installation: Installation, auditor: Auditor
) -> None:
    targets = [installation.target(partitions=2)]
    one = installation.proxy("one")
    one.start_ready()
    with Load(installation, targets) as load:
        installation.proxy("leaves").start()
        _shared(installation, "one", "leaves")
        assert installation.proxy("leaves").stop() == 0
        installation.proxy("dies").start()
        _shared(installation, "one", "dies")
        installation.proxy("dies").kill()
        _shared(installation, "one")

    ends = installation.judge()
    assert ends.counts == {"delivered": load.sent}
    auditor.confirm(installation, ends)


def test_restart_in_the_middle_of_a_rebalance_leaves_no_partition_to_nobody(
    installation: Installation,
) -> None:
    """It is killed between revocation and rejoin: Kafka forgets the second round."""
    targets = [installation.target(partitions=2)]
    one = installation.proxy("one")
    one.start_ready()
    with Load(installation, targets) as load:
        installation.proxy("two").start()
        while "shard given up" not in one.log:
            assert one.is_running
        one.kill()
        one.start()
        _shared(installation, "one", "two")

    assert installation.judge().counts == {"delivered": load.sent}


def test_frozen_proxy_that_wakes_up_is_fenced_and_does_nothing_twice(
    installation: Installation,
) -> None:
    targets = [installation.target(partitions=2)]
    zombie, heir = installation.proxy("zombie"), installation.proxy("heir")
    zombie.start_ready()
    with Load(installation, targets) as load:
        time.sleep(2)
        zombie.signal(SIGSTOP)
        heir.start()
        heir.await_shards(PARTITIONS)
        time.sleep(1)
        zombie.signal(SIGCONT)
        _shared(installation, "zombie", "heir")

    assert installation.judge().counts == {"delivered": load.sent}
    assert "session lost" in zombie.log or zombie.log.count("shard given up") >= PARTITIONS


def test_worker_that_dies_is_started_anew_and_a_dead_parent_leaves_none_behind(
    installation: Installation, auditor: Auditor
) -> None:
    targets = [installation.target(partitions=2)]
    proxy = installation.proxy("both", workers=2)
    proxy.start_ready()
    with Load(installation, targets) as load:
        proxy.await_shards(PARTITIONS)
        first = proxy.worker_pids()
        assert len(first) == 2
        os.kill(first[0], SIGKILL)
        wait_for(lambda: set(proxy.worker_pids()) - set(first), 180, "a new worker")
        proxy.await_shards(PARTITIONS)
        assert proxy.log.count("worker died") == 1

        workers = proxy.worker_pids()
        proxy.kill()
        wait_for(lambda: not any(map(_lives, workers)), 180, "the end of orphaned workers")
        proxy.start()
        proxy.await_shards(PARTITIONS)

    ends = installation.judge()
    assert ends.counts == {"delivered": load.sent}
    auditor.confirm(installation, ends)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
