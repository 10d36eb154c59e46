"""Two processes that must not be two: the error says so, and no record suffers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.load import Load
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.faults]

REFUSED_WITHIN_S = 180


def test_second_process_on_the_same_data_folder_is_refused(installation: Installation) -> None:
    topic, first = installation.target(), installation.proxy("first")
    first.start_ready()
    second = installation.proxy("second", data_dir=str(first.data_dir))
    with Load(installation, [topic]) as load:
        second.start()
        assert second.wait() == 1
    assert f"The data folder {first.data_dir} is in use by another process" in second.log

    assert installation.judge().counts == {"delivered": load.sent}


def test_second_process_under_the_same_instance_id_is_found_out(
    installation: Installation,
) -> None:
    """They fence each other until one gives up with the reason; the other goes on."""
    topic = installation.target()
    first = installation.proxy("first", instance_id="twin")
    second = installation.proxy("second", instance_id="twin")
    first.start_ready()
    with Load(installation, [topic]) as load:
        second.start()
        wait_for(
            lambda: not (first.is_running and second.is_running),
            REFUSED_WITHIN_S,
            "one of the twins to give up",
        )
        loser, winner = (second, first) if first.is_running else (first, second)
        assert loser.wait() == 1
        winner.await_shards(2)
    assert "Another process uses the instance id twin-0" in loser.log

    assert installation.judge().counts == {"delivered": load.sent}


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
