"""The Spark session of the jobs: connector, UTC, quiet, and the installed Java."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from proxy.embedded.jars import java
from spark_jobs.runtime import session
from spark_jobs.runtime.errors import SparkUnusable
from spark_jobs.runtime.session import (
    COLLECTOR,
    INTERPRETED,
    MODULE,
    SHUFFLE_PARTITIONS,
    connector_jars,
    java_home,
    java_options,
    job_session,
    size_shuffles,
    spark_session,
)


def test_session_has_the_connector_and_knows_what_the_jobs_rest_on(spark: SparkSession) -> None:
    repeated = f.map_from_arrays(f.array(f.lit("a"), f.lit("a")), f.array(f.lit(1), f.lit(2)))
    (row,) = spark.range(1).select(repeated["a"], f.current_timezone()).collect()

    assert tuple(row) == (2, "UTC")
    assert spark.conf.get("spark.jars") == ",".join(map(str, connector_jars()))


def test_asking_again_gives_the_session_that_is_there(spark: SparkSession) -> None:
    assert spark_session("another", "local[1]").sparkContext is spark.sparkContext
    assert spark.sparkContext.master == "local[2]"


def test_spark_leaves_nothing_in_the_folder_where_a_job_was_started(spark: SparkSession) -> None:
    spark.range(1).count()
    assert not Path("artifacts").exists()
    assert not Path("spark-warehouse").exists()


def test_spark_unpacks_its_libraries_where_they_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, cache = tmp_path / "tmp", tmp_path / "cache"
    temporary.mkdir()
    cache.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert session._scratch_folder(cache).parent == temporary
    monkeypatch.setattr(session, "_loads_libraries", lambda folder: folder != temporary)
    assert session._scratch_folder(cache).parent == cache
    monkeypatch.setattr(session, "_loads_libraries", lambda _: False)
    with pytest.raises(SparkUnusable, match="noexec.*TMPDIR"):
        session._scratch_folder(cache)


def test_a_user_without_a_name_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_001)
    with pytest.raises(SparkUnusable, match="2000000001 has no name"):
        session._refuse_nameless_user()


def _home(folder: Path, script: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.9", "21.0.8"])
def test_users_own_java_is_used_where_spark_runs_on_it(tmp_path: Path, version: str) -> None:
    home = _home(tmp_path / "own", f"echo 'openjdk version \"{version}\" 2025' >&2")
    assert java_home({"JAVA_HOME": str(home)}) == home


@pytest.mark.parametrize(
    "script",
    [
        "echo 'openjdk version \"11.0.2\"' >&2",
        "echo 'openjdk version \"25\"' >&2",
        "echo 'Module jdk.incubator.vector not found' >&2; exit 1",
    ],
    ids=["too old", "too new", "without the module"],
)
def test_users_java_that_spark_cannot_use_gives_way_to_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "it's a cache"))
    home = java_home({"JAVA_HOME": str(_home(tmp_path / "own", script))})

    started = subprocess.run(
        [
            home / "bin" / "java",
            MODULE,
            "-Dtwo words=kept",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert home.parent == tmp_path / "it's a cache" / "kafka-delay-proxy"
    assert "two words = kept" in started.stderr
    assert str(java().resolve().parents[1]) in started.stderr


def test_damaged_wrapper_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wrapper = java_home({}) / "bin" / "java"
    whole = wrapper.read_bytes()
    wrapper.write_bytes(whole[:20])

    assert java_home({}) / "bin" / "java" == wrapper
    assert wrapper.read_bytes() == whole
    assert list(wrapper.parent.iterdir()) == [wrapper]


def test_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SparkUnusable, match="XDG_CACHE_HOME"):
        java_home({})


def test_a_collector_that_the_environment_names_is_the_only_one() -> None:
    for short in (True, False):
        assert COLLECTOR in java_options({"JAVA_TOOL_OPTIONS": "-Xss2m"}, is_short=short)
        told = {"JDK_JAVA_OPTIONS": "-Xss2m -XX:+UseG1GC"}
        assert COLLECTOR not in java_options(told, is_short=short)


def test_the_number_of_parts_that_the_caller_asked_for_stays(spark: SparkSession) -> None:
    size_shuffles(spark, 10**9)
    assert spark.conf.get(SHUFFLE_PARTITIONS) == "2"


def test_a_session_that_was_there_keeps_its_settings_beyond_a_job(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    with job_session("small", more=INTERPRETED) as session:
        assert {name: session.conf.get(name) for name in INTERPRETED} == before != INTERPRETED
    assert {name: spark.conf.get(name) for name in INTERPRETED} == before


def test_settings_that_the_caller_gives_count_before_those_of_all_jobs(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    try:
        session = spark_session("again", more=INTERPRETED)
        assert {name: session.conf.get(name) for name in INTERPRETED} == INTERPRETED
        assert before != INTERPRETED
    finally:
        for name, value in before.items():
            spark.conf.set(name, value or "")
