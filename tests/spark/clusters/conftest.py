"""A Hadoop of one machine, a `spark-submit` that knows it, and topics to be audited."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.delivered_topics import (
    audit_options,
    commit_read,
    create_set,
    write_delivered,
)
from tests.support.hadoop.hdfs import Hdfs, running_hdfs
from tests.support.hadoop.spark_submit import SparkSubmit
from tests.support.hadoop.yarn import Yarn, running_yarn

RECORDS = 1_000


@pytest.fixture(scope="package")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """HDFS, for all tests here."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(scope="module")
def yarn(hdfs: Hdfs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """YARN beside that HDFS."""
    with running_yarn(hdfs, tmp_path_factory.mktemp("yarn")) as running:
        yield running


@pytest.fixture
def spark_submit(hdfs: Hdfs, tmp_path: Path) -> SparkSubmit:
    """`spark-submit` whose default file system is that HDFS."""
    return SparkSubmit(tmp_path / "submit", hdfs.conf)


@pytest.fixture(scope="package")
def delivered(kafka: str) -> list[str]:
    """The audit's options for topics that hold 1,000 records, each of them delivered."""
    name = "clusters"
    create_set(kafka, name)
    write_delivered(kafka, name, range(RECORDS))
    commit_read(kafka, name, RECORDS)
    options = audit_options(kafka, name).items()
    return [part for option, value in options for part in (f"--{option}", value)]
