"""Spark's connector to Kafka: jars pinned by a lock file, kept in the user's cache.

`python -m spark_jobs.jars` prints them as `spark-submit --jars` wants them.
"""

from importlib import resources
from pathlib import Path
from typing import Final

from proxy.embedded.jar_cache import ensure_all
from proxy.embedded.jars import CacheUnusable, JarsUnavailable, jars_of
from proxy.extras import ExtraMissing
from spark_jobs.runtime.errors import SparkUnusable

LOCK_NAME: Final = "connector-jars.lock"
NAME: Final = "Spark's Kafka connector"


def connector_jars() -> list[Path]:
    """Where the connector and what it needs beside Spark lie; fetches what the cache lacks.

    Raises `SparkUnusable`.
    """
    lock = resources.files("spark_jobs.runtime").joinpath(LOCK_NAME).read_text("utf-8")
    try:
        return ensure_all(NAME, jars_of(lock))
    except (CacheUnusable, ExtraMissing, JarsUnavailable) as error:
        raise SparkUnusable(error.found, error.remedy) from error
