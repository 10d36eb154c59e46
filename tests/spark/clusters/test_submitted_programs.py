"""Spark on several executors, in client and in cluster mode, with HDFS below."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.spark.clusters.conftest import RECORDS
from tests.spark.clusters.delta_tables import ROWS
from tests.support.hadoop.hdfs import Hdfs
from tests.support.hadoop.spark_submit import LOCAL_CLUSTER, REPOSITORY, SparkSubmit, on_yarn
from tests.support.hadoop.yarn import Yarn

pytestmark = pytest.mark.integration

AUDIT = REPOSITORY / "spark_jobs" / "audit_delivery.py"
TABLES = Path(__file__).with_name("delta_tables.py")
WITHIN_S = 600
RESULTS = {"verdicts", "violations", "summary"}
LOCAL_ONLY = pytest.mark.xfail(run=False, reason="--output takes folders of this machine alone")


class Results(NamedTuple):
    """Where an audit's results are to go, and what has come there."""

    output: str
    names: Callable[[], list[str]]


@pytest.fixture(params=["folder", pytest.param("hdfs", marks=LOCAL_ONLY)])
def results(request: pytest.FixtureRequest, hdfs: Hdfs, tmp_path: Path) -> Results:
    """A place of the test's own, on this machine's disk or in HDFS."""
    if request.param == "hdfs":
        path = f"/{tmp_path.name}/results"
        return Results(f"{hdfs.uri}{path}", lambda: hdfs.names(path))
    folder = tmp_path / "results"
    return Results(str(folder), lambda: [file.name for file in folder.iterdir()])


def _summary(texts: Iterable[str]) -> Any:
    """What `--json` has printed, among what else stdout holds."""
    lines = [line for text in texts for line in text.splitlines()]
    (summary,) = [line for line in lines if line.startswith('{"result"')]
    return json.loads(summary)


def test_three_executors_write_tables_to_hdfs_and_read_them(
    spark_submit: SparkSubmit, hdfs: Hdfs
) -> None:
    ended = spark_submit.run(TABLES, [f"{hdfs.uri}/tables"], LOCAL_CLUSTER, WITHIN_S)

    assert ended.exit_code == 0, ended.stdout + ended.stderr
    left = ROWS - len(range(3, ROWS, 7))
    counts = {"parquet": ROWS, "at first": ROWS, "deleted": left, "appended": left + 10}
    work = {"vectors": 6, "rewritten": 0, "executors": 3}
    assert json.loads(ended.stdout) == counts | work
    assert "_delta_log" in hdfs.names("/tables/delta")


def test_audit_submitted_in_client_mode_runs_on_three_executors(
    spark_submit: SparkSubmit, delivered: list[str], results: Results
) -> None:
    asked = [*delivered, "--output", results.output, "--json"]
    ended = spark_submit.run(AUDIT, asked, LOCAL_CLUSTER, WITHIN_S)

    assert ended.exit_code == 0, ended.stdout + ended.stderr
    assert _summary([ended.stdout])["verdicts"]["delivered"] == RECORDS
    assert set(results.names()) > RESULTS


def test_audit_submitted_in_cluster_mode_runs_within_yarn(
    spark_submit: SparkSubmit, delivered: list[str], results: Results, yarn: Yarn
) -> None:
    asked = [*delivered, "--output", results.output, "--json"]
    ended = spark_submit.run(AUDIT, asked, on_yarn(), WITHIN_S)

    assert ended.exit_code == 0, "\n".join([ended.stderr, *yarn.outputs("stderr")])
    assert _summary(yarn.outputs("stdout"))["verdicts"]["delivered"] == RECORDS
    assert set(results.names()) > RESULTS
