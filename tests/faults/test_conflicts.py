"""Two processes with the same identity: one stops with an error, and no record suffers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.load import Load
from tests.support.records import Outgoing
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

REFUSED_WITHIN_S = 180
LONG_SESSION_MS = 45_000
WAITED = "another process has this instance id"


def test_second_process_on_the_same_data_folder_is_refused(installation: Installation) -> None:
    topic, first = installation.target(), installation.proxy("first")
    first.start_ready()
    second = installation.proxy("second", data_dir=str(first.data_dir))
    with Load(installation, [topic]) as load:
        second.start()
        assert second.wait() == 1
    assert f"The data folder {first.data_dir} is in use by another process" in second.log

    assert installation.judge().counts == {"delivered": load.sent}


def test_second_process_under_the_same_instance_id_yields(installation: Installation) -> None:
    """The first process does not notice a start or a restart of the second."""
    topic = installation.target()
    kafka = installation.kafka(**{"session.timeout.ms": str(LONG_SESSION_MS)})
    first = installation.proxy("first", instance_id="twin", kafka=kafka)
    second = installation.proxy("second", instance_id="twin")
    first.start_ready()
    with Load(installation, [topic]) as load:
        for _ in range(2):
            second.start()
            assert second.wait() == 1
            assert "Another process uses the instance id twin-0" in second.log
        first.await_shards(2)
    assert "session lost" not in first.log

    assert installation.judge().counts == {"delivered": load.sent}


def test_two_processes_of_one_instance_id_that_start_at_once_end_as_one(
    installation: Installation,
) -> None:
    topic = installation.target()
    twins = [installation.proxy(name, instance_id="twin") for name in ("first", "second")]
    for twin in twins:
        twin.start()
    with Load(installation, [topic]) as load:
        wait_for(
            lambda: not all(twin.is_running for twin in twins),
            REFUSED_WITHIN_S,
            "one of the twins to give up",
        )
        loser, winner = sorted(twins, key=lambda twin: twin.is_running)
        assert loser.wait() == 1
        winner.await_shards(2)
    assert "Another process uses the instance id twin-0" in loser.log

    assert installation.judge().counts == {"delivered": load.sent}


def test_only_a_killed_process_whose_data_folder_is_gone_is_waited_for(
    installation: Installation,
) -> None:
    """A restart with its data folder replaces its predecessor at once."""
    session = {"session.timeout.ms": str(LONG_SESSION_MS)}
    headers = [("timer-topic", installation.target().encode())]
    proxy = installation.proxy(kafka=installation.kafka() | session)
    proxy.start_ready()
    installation.send([Outgoing(headers=headers, partition=number) for number in range(2)])
    installation.await_ends(2)
    proxy.kill()
    proxy.start_ready()
    assert WAITED not in proxy.log
    proxy.kill()
    shutil.rmtree(proxy.data_dir)
    proxy.start_ready()
    assert WAITED in proxy.log
    assert installation.judge().counts == {"delivered": 2}


@pytest.mark.parametrize(
    ("workers", "config", "found"),
    [
        (1, {"cleanup.policy": "compact"}, "is compacted"),
        (2, {"cleanup.policy": "compact"}, "is compacted"),
        (1, {"message.timestamp.type": "CreateTime"}, "keeps the producers' time"),
    ],
)
def test_ingress_that_would_lose_or_misjudge_records_is_refused(
    kafka: str, tmp_path: Path, workers: int, config: dict[str, str], found: str
) -> None:
    installation = Installation(kafka, tmp_path, ingress_config=config)
    try:
        proxy = installation.proxy(workers=workers)
        proxy.start()
        assert proxy.wait() == 1
        assert f"The topic {installation.ingress} {found}" in proxy.log
        assert "=delete." in proxy.log or "=LogAppendTime." in proxy.log
    finally:
        installation.close()
