"""A broker's data folder has one user, a compatible Kafka, and enough space."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.embedded import server as data_folder
from proxy.embedded.server import BrokerFailed, DataFolder, DataFromNewerKafka, new_cluster_id
from proxy.errors import DataDirInUse


class Usage(NamedTuple):
    free: int


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "LOCK_WAIT_S", 0.0)


def test_folder_is_claimed_by_one_at_a_time(tmp_path: Path) -> None:
    first, second = DataFolder(tmp_path), DataFolder(tmp_path)
    first.claim("4.3.1")
    with pytest.raises(DataDirInUse, match=str(tmp_path)):
        second.claim("4.3.1")

    first.release()
    second.claim("4.3.1")
    second.release()


@pytest.mark.parametrize("found", ["4.2.0", "4.3.1"])
def test_data_of_an_older_kafka_is_taken(tmp_path: Path, found: str) -> None:
    folder = DataFolder(tmp_path)
    folder.version.write_text(found)
    folder.claim("4.3.1")
    folder.release()


@pytest.mark.parametrize("found", ["4.3.2", "4.10.0", "5.0.0"])
def test_data_of_a_newer_kafka_is_refused_and_left_unclaimed(tmp_path: Path, found: str) -> None:
    folder = DataFolder(tmp_path)
    folder.version.write_text(found)
    with pytest.raises(DataFromNewerKafka, match=f"made by Kafka {found}; this is Kafka 4.3.1"):
        folder.claim("4.3.1")
    folder.version.write_text("4.3.1")
    folder.claim("4.3.1")
    folder.release()


def test_full_disk_is_told_before_kafka_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free=5 << 20))
    with pytest.raises(BrokerFailed, match="Only 5 MB are free"):
        DataFolder(tmp_path).claim("4.3.1")


def test_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerFailed, match="cannot be written"):
        DataFolder(tmp_path / "file" / "data").claim("4.3.1")


def test_cluster_id_is_read_from_where_kafka_keeps_it(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    assert folder.cluster_id() is None
    folder.kafka.mkdir()
    (folder.kafka / "meta.properties").write_text("#\nversion=1\ncluster.id=abc=\nnode.id=1\n")
    assert folder.cluster_id() == "abc="


def test_log_of_the_run_before_is_kept_and_no_other(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    for run in ("first", "second", "third"):
        folder.rotate_log()
        folder.log.write_text(run)
    assert folder.log_tail(5) == ["third"]
    assert (tmp_path / "broker.log.1").read_text() == "second"


def test_cluster_ids_are_22_characters_without_a_leading_dash() -> None:
    ids = {new_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(text) == 22 and text[0] != "-" for text in ids)


def test_folder_knows_whether_the_controller_still_counts_on_a_broker(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    never_ran = folder.may_be_registered
    folder.kafka.mkdir()
    (folder.kafka / "meta.properties").write_text("cluster.id=abc\n", "utf-8")
    ran = folder.may_be_registered
    folder.fenced.touch()
    fenced = folder.may_be_registered
    folder.fenced.unlink()
    found = (never_ran, ran, fenced, folder.may_be_registered)
    assert found == (False, True, False, True)
