"""Fixtures for all tests: a shared broker, brokers of a test's own, a Spark session."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from unittest.mock import patch

import pytest
import structlog
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from proxy.embedded import EmbeddedBroker
from tests.support.installation.broker import any_broker
from tests.support.installation.other_kafka import use_named_kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.workermanage import WorkerController

    from tests.support.oracle.auditor import Auditor

SPARK = "tests/spark/"
FAULTS = "tests/faults/"
CLUSTERS = (
    "tests/spark/clusters/",
    "tests/faults/test_unavailable_targets.py",
    "tests/integration/test_group_owners.py",
    "tests/integration/test_kafka_cluster.py",
)
"""Files that start a cluster. Two clusters at once starve each other."""
ASKS_FOR_SPARK = re.compile(r"\b(?:spark|auditor): ")
"""A fixture name. The xdist controller sees no fixtures, but it sees the files."""
SPARK_SESSIONS = 2
"""Workers that may have a session. Each session takes about 2 GB."""
QUICK = ("tests/chart/", "tests/property/", "tests/unit/")
NOT_QUICK = ("rest", "slow", "long")
SLOWEST_FIRST = (SPARK, FAULTS, "tests/integration/", "tests/property/", "")
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
"""The JVM's second compiler pays off for Spark, but not for a short-lived test broker."""
os.environ.setdefault("JDK_JAVA_OPTIONS", ONE_COMPILER)
FEW_COLLECTIONS = (
    "-XX:+UseSerialGC -Xms1g -Xmn600m -XX:MetaspaceSize=512m -XX:ReservedCodeCacheSize=512m"
)
"""Garbage collection settings of Spark's process. Tests leave little garbage, but many classes and
much compiled code. One compiler alone fills 48 MB, and each full area triggers a full collection.
"""
os.environ.setdefault("SPARK_SUBMIT_OPTS", FEW_COLLECTIONS)
use_named_kafka()
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
"""An example's duration depends on the machine more than on the code."""
AS_ELSEWHERE = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}
FOR_FEW = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Compiling each step and planning again after it takes longer than processing a few records."""
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}


class StartBroker(Protocol):
    """Starts a broker in the data folder of that name."""

    def __call__(
        self, name: str = "own", *, port: int = 0, overrides: Mapping[str, str] | None = None
    ) -> EmbeddedBroker: ...


@cache
def uses_spark(scope: str) -> bool:
    path = Path(__file__).parents[1] / scope
    is_named = path.suffix == ".py" and bool(ASKS_FOR_SPARK.search(path.read_text("utf-8")))
    return scope.startswith(SPARK) or is_named


class FewSparkSessions(LoadFileScheduling):  # type: ignore[misc]
    """Scheduler that gives files with Spark to SPARK_SESSIONS workers, and starts the longest files
    first.

    Clusters and audited fault tests run one after the other.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._with_session: set[WorkerController] = set()

    def _split_scope(self, nodeid: str) -> str:
        scope = str(super()._split_scope(nodeid))
        is_heavy = scope.startswith(CLUSTERS) or (scope.startswith(FAULTS) and uses_spark(scope))
        return CLUSTERS[0] if is_heavy else scope

    def _assign_work_unit(self, node: WorkerController) -> None:
        scopes = [scope for scope in self.workqueue if self._may_take(node, scope)]
        if not scopes:
            node.shutdown()
            return
        scope = min(scopes, key=_place_in_line)
        if uses_spark(scope):
            self._with_session.add(node)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _may_take(self, node: WorkerController, scope: str) -> bool:
        has_room = node in self._with_session or len(self._with_session) < SPARK_SESSIONS
        return has_room or not uses_spark(scope)

    def remove_node(self, node: WorkerController) -> str | None:
        self._with_session.discard(node)
        crashed: str | None = super().remove_node(node)
        return crashed


def _place_in_line(scope: str) -> int:
    return next(n for n, folder in enumerate(SLOWEST_FIRST) if scope.startswith(folder))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewSparkSessions | None:
    return FewSparkSessions(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need no broker. Allow Spark sessions only on the chosen workers."""
    for item in items:
        if item.nodeid.startswith(QUICK) and not any(map(item.get_closest_marker, NOT_QUICK)):
            item.add_marker("quick")
        asks = "spark" in getattr(item, "fixturenames", ())
        if asks and not uses_spark(item.nodeid.partition("::")[0]):
            raise pytest.UsageError(
                f"{item.nodeid} asks for Spark: name `spark` or `auditor` in its arguments"
            )


@pytest.fixture(autouse=True)
def process_of_its_own() -> Iterator[None]:
    """Undo the process-wide settings of a command or a worker that runs within a test.

    These are the umask, the log target (the captured stderr is closed later), the garbage collector
    and the thread switch interval. Without the collector, a test process keeps every client it ever
    made.
    """
    umask = os.umask(0o022)
    os.umask(umask)
    switch_s = sys.getswitchinterval()
    yield
    os.umask(umask)
    structlog.reset_defaults()
    sys.setswitchinterval(switch_s)
    gc.enable()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the bootstrap servers of the broker that all tests of the session share.

    It is `KAFKA_BOOTSTRAP_SERVERS`, else a Docker container, else the embedded broker. Use topics
    of your own: `tests.support.records.new_topic`.
    """
    with any_broker(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start embedded brokers that a test may stop, kill and start again.

    `own_broker("name", port=..., overrides={...})`: the same name gives the same data folder.
    Brokers still running at the end of the test are killed.
    """
    with ExitStack() as running:

        def start(
            name: str = "own", *, port: int = 0, overrides: Mapping[str, str] | None = None
        ) -> EmbeddedBroker:
            folder = tmp_path / f"broker-{name}"
            broker = EmbeddedBroker(folder, port=port, overrides=overrides)
            running.callback(broker.kill)
            broker.start()
            return broker

        yield start


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a local session with two cores and two shuffle partitions.

    Starting a session takes longer than most tests, so each worker has one (`FewSparkSessions`).
    """
    from spark_jobs.runtime.session import spark_session

    folder = tmp_path_factory.mktemp("spark")
    own = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    with patch.dict(os.environ):
        if os.environ["JDK_JAVA_OPTIONS"] == ONE_COMPILER:
            del os.environ["JDK_JAVA_OPTIONS"]
        session = spark_session("tests", "local[2]", "1g", {**SMALL, **own})
    _set(session, FOR_FEW)
    yield session
    session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    _set(spark, AS_ELSEWHERE)
    yield
    _set(spark, FOR_FEW)


def _set(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)


@pytest.fixture
def auditor(spark: SparkSession, tmp_path: Path) -> Auditor:
    from tests.support.oracle.auditor import Auditor

    return Auditor(spark, tmp_path)
