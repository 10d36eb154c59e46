"""A single-machine Hadoop, its `spark-submit`, and topics to audit."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hadoop.hdfs import Hdfs, running_hdfs
from tests.support.hadoop.spark_submit import SparkSubmit
from tests.support.hadoop.yarn import Yarn, running_yarn
from tools.benchmarks.audit_scale.writing import Site, write

HUNDREDS = range(8)
VALUE_BYTES = 50


@pytest.fixture(scope="package")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(scope="module")
def yarn(hdfs: Hdfs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with running_yarn(hdfs, tmp_path_factory.mktemp("yarn")) as running:
        yield running


@pytest.fixture
def spark_submit(hdfs: Hdfs, tmp_path: Path) -> SparkSubmit:
    return SparkSubmit(tmp_path / "submit", hdfs.conf)


@pytest.fixture(scope="package")
def site(kafka: str) -> Site:
    found = Site.create(kafka, "clusters", round(time.time() * 1_000), VALUE_BYTES)
    write(found, HUNDREDS)
    return found
