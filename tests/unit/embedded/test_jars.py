"""Jars are fetched once and completely. Damaged jars are fetched again."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.embedded import jars as jar_cache
from proxy.embedded.jars import (
    ARRIVING,
    CacheUnusable,
    Jar,
    JarsUnavailable,
    cache_folder,
    ensure_jars,
    fetch,
    kafka_version,
    locked_jars,
)
from tests.unit.embedded.maven import Repository, maven_repository

ONE, TWO = "org.example:one:1.0", "org.example:two:2.0"


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    with maven_repository() as served:
        monkeypatch.setenv("MAVEN_MIRROR_URL", served.address)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        yield served


def _lock(monkeypatch: pytest.MonkeyPatch, *locked: Jar) -> None:
    kafka = replace(locked[0], coordinates="org.apache.kafka:kafka_2.13:4.3.1")
    monkeypatch.setattr(jar_cache, "locked_jars", lambda: locked)
    monkeypatch.setattr(jar_cache, "kafka_version", lambda: kafka.coordinates.rpartition(":")[2])


def test_lock_file_pins_kafka_and_a_logging_back_end() -> None:
    names = [jar.file_name for jar in locked_jars()]
    assert kafka_version() == "4.3.1"
    assert "kafka_2.13-4.3.1.jar" in names
    assert "slf4j-simple-1.7.36.jar" in names
    assert len(set(names)) == len(names)


def test_lacking_jars_are_fetched_once(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = repository.add(ONE, b"1" * 1000), repository.add(TWO, b"2" * 2000)
    _lock(monkeypatch, one, two)

    assert [path.name for path in ensure_jars()] == ["one-1.0.jar", "two-2.0.jar"]
    assert all(path.read_bytes() for path in ensure_jars())
    assert repository.asked["one-1.0.jar"] == 1


def test_damaged_jar_is_fetched_again(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lock(monkeypatch, repository.add(ONE, b"right"))
    (path,) = ensure_jars()
    path.write_bytes(b"wrong")

    assert ensure_jars()[0].read_bytes() == b"right"


def test_many_starters_at_once_fetch_once(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lock(monkeypatch, repository.add(ONE, b"1" * 100_000))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ensure_jars(), range(8)))

    assert {paths[0].read_bytes() for paths in found} == {b"1" * 100_000}
    assert repository.asked["one-1.0.jar"] == 1


def test_jar_with_other_bytes_than_locked_is_refused(
    repository: Repository, tmp_path: Path
) -> None:
    honest = repository.add(ONE, b"honest")
    repository.contents[honest.file_name] = b"forged"

    with pytest.raises(JarsUnavailable, match="SHA-256 differs"):
        fetch([honest], tmp_path, "Kafka 4.3.1")
    assert list(tmp_path.iterdir()) == []


def test_jars_that_arrived_stay_when_another_fails(repository: Repository, tmp_path: Path) -> None:
    one = repository.add(ONE, b"1")
    absent = Jar(TWO, "0" * 64, 1)

    with pytest.raises(JarsUnavailable, match="org.example:two:2.0.*try again"):
        fetch([one, absent], tmp_path, "Kafka 4.3.1")
    assert [path.name for path in tmp_path.iterdir()] == ["one-1.0.jar"]


def test_what_a_killed_fetch_left_is_cleared_away(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / f"{ARRIVING}old").mkdir()
    (tmp_path / f"{ARRIVING}old" / "half.jar").write_bytes(b"half")

    fetch([repository.add(ONE, b"1")], tmp_path, "Kafka 4.3.1")

    assert [path.name for path in tmp_path.iterdir()] == ["one-1.0.jar"]


def test_silent_repository_is_named_with_what_to_do(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAVEN_MIRROR_URL", "http://127.0.0.1:9")
    with pytest.raises(JarsUnavailable, match=r"Connection refused.*MAVEN_MIRROR_URL"):
        fetch([repository.add(ONE, b"1")], tmp_path, "Kafka 4.3.1")


def test_cache_that_cannot_be_made_is_named(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    _lock(monkeypatch, repository.add(ONE, b"1"))
    with pytest.raises(CacheUnusable, match="XDG_CACHE_HOME"):
        ensure_jars()


def test_relative_cache_home_is_ignored_as_the_standard_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "kafka-delay-proxy" / "jars"


def test_progress_elsewhere_than_on_a_terminal_is_a_few_plain_lines(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch([repository.add(ONE, b"1" * 100_000)], tmp_path, "Kafka 4.3.1")

    title, *steps = capsys.readouterr().err.splitlines()
    assert title.startswith("Fetching Kafka 4.3.1 (1 jars, 0 MB) into")
    assert steps == ["  25 %", "  50 %", "  75 %", "  100 %"]
