"""The archive of Java's classes: made for Spark's Java, taken by it, and needed by nothing."""

import fcntl
import lzma
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from spark_jobs.runtime.class_archive import (
    LIST_NAME,
    MOST_KEPT,
    archive_options,
    class_path,
    ensure_archive,
)
from spark_jobs.runtime.connector_jars import connector_jars
from spark_jobs.runtime.java_home import java_home
from spark_jobs.runtime.lock_classes import packed

FEW_CLASSES = "java/lang/Object\norg/apache/spark/sql/SparkSession\n"
IN_ARCHIVE = "org.apache.spark.sql.SparkSession source: shared objects file"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's Java in a cache that has its jars, and nothing else; not that of a session before."""
    jars = connector_jars()[0].parent
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "kafka-delay-proxy").mkdir()
    (tmp_path / "kafka-delay-proxy" / "jars").symlink_to(jars)
    return java_home({})


def _archives(home: Path) -> list[Path]:
    return sorted((home.parent / "classes").glob("*.jsa"))


def test_sparks_own_launcher_starts_a_java_that_takes_the_archive(
    home: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whatever the launcher adds to the class path: jars twice, folders that are not there."""
    ensure_archive(home, connector_jars(), FEW_CLASSES)
    assert "Preparing Java's classes for Spark, once" in capfd.readouterr().err
    loaded = tmp_path / "loaded.log"
    script = "from spark_jobs.runtime.session import spark_session\nspark_session('taking').stop()"
    told = {"JAVA_TOOL_OPTIONS": f"-Xlog:class+load:file={loaded}"}
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **told}, check=True)

    assert IN_ARCHIVE in loaded.read_text("utf-8")


def test_archive_that_is_there_is_not_made_again_and_that_of_other_jars_is_not_taken(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ensure_archive(home, connector_jars(), FEW_CLASSES)
    (archive,) = _archives(home)
    made = archive.stat().st_mtime_ns
    capfd.readouterr()
    ensure_archive(home, connector_jars(), FEW_CLASSES)

    assert capfd.readouterr().err == ""
    assert archive.stat().st_mtime_ns == made
    assert f"-XX:SharedArchiveFile={archive}" in archive_options(home, connector_jars())
    assert archive_options(home, connector_jars()[1:]) == []


def test_only_the_newest_archives_are_kept_and_nothing_of_those_who_were_killed(
    home: Path,
) -> None:
    folder = home.parent / "classes"
    (folder / ".making-killed").mkdir(parents=True)
    for age in range(MOST_KEPT + 1):
        (folder / f"old{age}.jsa").write_bytes(b"")
        os.utime(folder / f"old{age}.jsa", (1_000 - age, 1_000 - age))
    ensure_archive(home, connector_jars(), FEW_CLASSES)

    assert len(_archives(home)) == MOST_KEPT
    assert folder / "old0.jsa" in _archives(home)
    assert list(folder.glob(".making-*")) == []


def test_what_goes_wrong_is_said_and_leaves_nothing(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'no space left' >&2; exit 1\n")
    ensure_archive(home, connector_jars(), FEW_CLASSES)

    assert "Java's classes were not prepared: no space left." in capfd.readouterr().err
    assert _archives(home) == []
    assert archive_options(home, connector_jars()) == []


def test_one_process_makes_it_and_others_go_on_without(home: Path) -> None:
    folder = home.parent / "classes"
    folder.mkdir()
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensure_archive(home, connector_jars(), FEW_CLASSES)
    assert _archives(home) == []


def test_java_runs_as_well_where_another_process_has_taken_the_archive_away(home: Path) -> None:
    ensure_archive(home, connector_jars(), FEW_CLASSES)
    options = archive_options(home, connector_jars())
    _archives(home)[0].unlink()
    asked = [str(home / "bin" / "java"), *options, "-cp", class_path(connector_jars()), "-version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "warning" not in said.stdout + said.stderr


def test_users_own_java_gets_none(home: Path, tmp_path: Path) -> None:
    ensure_archive(tmp_path / "jdk-21", connector_jars(), FEW_CLASSES)
    assert not (home.parent / "classes").exists()
    assert archive_options(tmp_path / "jdk-21", connector_jars()) == []


def test_wrapper_gives_java_each_entry_that_is_there_once(home: Path, tmp_path: Path) -> None:
    """In their order, and folders of jars as the jars in them: two words in a name stay one."""
    folder = tmp_path / "two words"
    folder.mkdir()
    for name in ("a.jar", "b.jar", "notes.txt"):
        (folder / name).write_bytes(b"")
    given = f"{folder}/b.jar:hive-jackson/*:{folder}/none:{folder}/*:{folder}"
    asked = [str(home / "bin" / "java"), "-cp", given, "-XshowSettings:properties", "-version"]
    others = {"found": "/not/ours", "before": "-cp"}
    said = subprocess.run(
        asked, env={**os.environ, **others}, capture_output=True, text=True, check=True
    ).stderr

    shown = said.partition("java.class.path = ")[2].partition("java.class.version")[0].split("\n")
    entries = [f"{folder}/b.jar", f"{folder}/a.jar", str(folder)]
    assert [line.strip() for line in shown if line.strip()] == entries


def test_wrapper_leaves_the_programs_own_arguments_as_they_are(home: Path, tmp_path: Path) -> None:
    script = (home / "bin" / "java").read_text("utf-8").partition("\nexec ")[0]
    (tmp_path / "shown").write_text(f'{script}\nprintf "%s\\n" "$@"\n')
    asked = ["sh", str(tmp_path / "shown"), "-cp", str(tmp_path), "Main", "-cp", "/not/there"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == asked[2:]


def test_list_has_the_classes_of_an_audit() -> None:
    data = resources.files("spark_jobs.runtime").joinpath(LIST_NAME).read_bytes()
    listed = lzma.decompress(data).decode().splitlines()
    assert "io/delta/sql/DeltaSparkSessionExtension" in listed
    assert "org/apache/spark/sql/kafka010/KafkaBatchPartitionReader" in listed
    assert class_path([Path("/first.jar")]).startswith("/first.jar:")


def test_list_of_java_is_packed_without_what_belongs_to_one_run() -> None:
    written = """\
# NOTE: Do not modify this file.
java/lang/Object id: 0
jdk/proxy2/$Proxy7 id: 17
of/another/Loader id: 18 super: 0 source: file:/users.jar
@lambda-proxy java/lang/Object run ()Ljava/lang/Runnable;
"""
    assert lzma.decompress(packed(written)).decode() == (
        "java/lang/Object\n@lambda-proxy java/lang/Object run ()Ljava/lang/Runnable;\n"
    )
