"""Spark on several executors, in client and cluster mode, on HDFS."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.spark.clusters.conftest import HUNDREDS
from tests.support.hadoop.hdfs import Hdfs
from tests.support.hadoop.spark_submit import LOCAL_CLUSTER, REPOSITORY, SparkSubmit, on_yarn
from tests.support.hadoop.yarn import Yarn
from tools.benchmarks.audit_scale.auditing import check, options
from tools.benchmarks.audit_scale.writing import Site

pytestmark = [pytest.mark.integration, pytest.mark.slow]

AUDIT = REPOSITORY / "spark_jobs" / "audit_delivery.py"
WITHIN_S = 600
RESULTS = {"audits", "verdicts", "open", ".intermediate"}


def _summary(texts: Iterable[str]) -> Any:
    lines = [line for text in texts for line in text.splitlines()]
    (summary,) = [line for line in lines if line.startswith('{"result"')]
    return json.loads(summary)


def test_audits_go_on_from_one_another_in_hdfs_on_three_executors(
    spark_submit: SparkSubmit, site: Site, hdfs: Hdfs
) -> None:
    asked = [*options(site), f"--output={hdfs.uri}/audits", "--continue", "--json"]
    for hundreds in (HUNDREDS, HUNDREDS[len(HUNDREDS) :]):
        ended = spark_submit.run(AUDIT, asked, LOCAL_CLUSTER, WITHIN_S)
        assert ended.exit_code == 0, ended.stdout + ended.stderr
        check(_summary([ended.stdout]), hundreds)
    assert set(hdfs.names("/audits")) == RESULTS
    assert not hdfs.names("/audits/.intermediate")


def test_audit_submitted_in_cluster_mode_runs_within_yarn(
    spark_submit: SparkSubmit, site: Site, hdfs: Hdfs, yarn: Yarn
) -> None:
    asked = [*options(site), f"--output={hdfs.uri}/of-yarn", "--json"]
    ended = spark_submit.run(AUDIT, asked, on_yarn(), WITHIN_S)

    assert ended.exit_code == 0, "\n".join([ended.stderr, *yarn.outputs("stderr")])
    check(_summary(yarn.outputs("stdout")), HUNDREDS)
    assert set(hdfs.names("/of-yarn")) == RESULTS
