"""A planned stop: the other instances take over long before the session time-out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.load import Load
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

PARTITIONS = 4
SESSION_MS, LATEST_MS = 45_000, 15_000
SHARED_WITHIN_S = 180


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    with closing(Installation(kafka, tmp_path, PARTITIONS)) as made:
        yield made


@pytest.mark.parametrize("workers", [1, 2])
def test_records_are_on_time_while_one_of_two_instances_stops_and_comes_back(
    installation: Installation, workers: int
) -> None:
    kafka = installation.kafka(**{"session.timeout.ms": str(SESSION_MS)})
    stays, stops = (
        installation.proxy(name, kafka=kafka, workers=workers) for name in ("stays", "stops")
    )

    def are_shared() -> bool:
        counts = [stays.shards(), stops.shards()]
        return sum(counts) == PARTITIONS and min(counts) > 0

    stays.start_ready()
    with Load(installation, [installation.target(partitions=2)], per_second=100) as load:
        for _ in range(2):
            stops.start()
            wait_for(are_shared, SHARED_WITHIN_S, "both to serve partitions")
            assert stops.stop() == 0
            stays.await_shards(PARTITIONS)

    ends = installation.judge()
    assert ends.counts == {"delivered": load.sent}
    assert max(ends.lateness_ms) < LATEST_MS
