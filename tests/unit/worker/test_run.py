"""Start-up refusals before any broker request, and the number of workers."""

from pathlib import Path

import pytest

from proxy.config.settings import Settings
from proxy.errors import DiskTooSmall
from proxy.kafka.topics import TopicFacts
from proxy.worker import run as starting
from proxy.worker.run import run


def test_a_reserve_larger_than_the_disk_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(DiskTooSmall, match="no record would ever be read"):
        run(Settings(data_dir=tmp_path, disk_reserve_bytes=1 << 59))


@pytest.mark.parametrize(
    ("asked", "cores", "partitions", "expected"),
    [(None, 4, 16, 4), (None, 16, 4, 4), (None, 1, 4, 1), (6, 2, 4, 6)],
)
def test_workers_auto_is_one_for_each_core_and_at_most_one_for_each_partition(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    asked: int | None,
    cores: int,
    partitions: int,
    expected: int,
) -> None:
    begun: list[int] = []
    settings = Settings(workers=asked, data_dir=tmp_path)
    monkeypatch.setattr(starting, "usable_cores", lambda: cores)
    monkeypatch.setattr(starting, "ensure_topics", lambda *_: [])
    facts = TopicFacts(settings.topics.ingress, "id", partitions)
    monkeypatch.setattr(starting, "describe_topic", lambda *_: facts)
    monkeypatch.setattr(starting, "_run_here", lambda *_: begun.append(1))
    monkeypatch.setattr(starting, "_run_processes", lambda _, count, __: begun.append(count))
    run(settings)
    assert begun == [expected]
