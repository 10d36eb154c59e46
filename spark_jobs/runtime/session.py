"""The Spark session of a job: on this machine, unless `spark-submit` or the caller decides."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from importlib import resources
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_jobs.runtime.connector_jars import connector_jars
from spark_jobs.runtime.errors import SparkUnusable
from spark_jobs.runtime.java_home import java_home

SPARK: Final = "4.0."
HERE: Final = "127.0.0.1"
LOCAL_PARTITIONS: Final = "32"
"""Of ten million records some 80 MB each; Spark's own 200 take a minute for none at all."""
WHAT_JOBS_REST_ON: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}
"""A header repeated counts with its last value: so does a map made of headers. Java never compiles
methods of more than 8,000 bytes: what would become one runs in smaller pieces. The pruning of
partitions traces what tables are joined by through all steps before, which took minutes here; and
no table is partitioned by that."""
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


def spark_session(
    app: str,
    master: str = "local[*]",
    driver_memory: str = "4g",
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session in which the jobs of this package run: UTC, with the connector to Kafka.

    A session that is there already, or that `spark-submit` prepares, is used: its master, memory
    and jars are the caller's affair then (`--jars $(python -m spark_jobs.jars)`). `more` are
    further Spark settings; they win. Raises `SparkUnusable`.
    """
    if SparkSession.getActiveSession() is None and not _is_submitted():
        own = {**_of_this_process(master, driver_memory), **QUIET, **(more or {})}
        if master.startswith("local"):
            os.environ["SPARK_LOCAL_IP"] = HERE
        os.environ["JAVA_HOME"] = str(java_home())
        with chdir(_scratch_folder()):
            session = _started(SparkSession.builder.appName(app).master(master), own)
    else:
        session = _started(SparkSession.builder.appName(app), more or {})
    _check_version(session)
    for name, value in WHAT_JOBS_REST_ON.items():
        session.conf.set(name, value)
    return session


def _is_submitted() -> bool:
    """`spark-submit` has started the JVM before Python and says where."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _scratch_folder() -> Path:
    """Where the JVM works: Spark 4.0.0 leaves a folder `artifacts` there (SPARK-52396)."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-delay-proxy-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _of_this_process(master: str, driver_memory: str) -> dict[str, str]:
    with resources.as_file(resources.files("spark_jobs.runtime") / "log4j2.properties") as logging:
        quiet_logs = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    local = {
        "spark.driver.host": HERE,
        "spark.driver.bindAddress": HERE,
        "spark.sql.shuffle.partitions": LOCAL_PARTITIONS,
    }
    return {
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": quiet_logs,
        **(local if master.startswith("local") else {}),
    }


def _started(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkUnusable(
            f"Spark does not start: {error}.",
            "Its own words are above; --driver-memory may be more than this machine has.",
        ) from error


def _check_version(session: SparkSession) -> None:
    if not session.version.startswith(SPARK):
        raise SparkUnusable(
            f"This is Spark {session.version}; the jobs were tested with {SPARK}x.",
            "Install the extra `spark` of kafka-delay-proxy, and take SPARK_HOME out of the "
            "environment if it names another Spark.",
        )
