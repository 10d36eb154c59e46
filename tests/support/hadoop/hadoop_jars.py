"""Jars of Hadoop's servers, pinned by a lock file and kept in the user's cache."""

from pathlib import Path
from typing import Final

import pyspark

from proxy.embedded.jars import ensure_all, jars_of

HERE: Final = Path(__file__).parent
HADOOP_LOCK: Final = HERE / "hadoop-jars.lock"
SPARK_HOME: Final = Path(pyspark.__file__).parent
BROUGHT_BY_SPARK: Final = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "log4j-1.2-api",
    "jcl-over-slf4j",
)


def hadoop_jars() -> list[Path]:
    """Fetch missing jars. Return the classpath of an HDFS or YARN server."""
    own = ensure_all("Hadoop's servers", jars_of(HADOOP_LOCK.read_text("utf-8")))
    return own + [_of_spark(name) for name in BROUGHT_BY_SPARK]


def _of_spark(name: str) -> Path:
    (jar,) = (SPARK_HOME / "jars").glob(f"{name}-[0-9]*.jar")
    return jar
