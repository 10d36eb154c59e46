"""Fixtures every test may ask for: a broker to share, brokers to maltreat, a Spark session."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
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
SPARK_CLUSTERS = "tests/spark/clusters/"
FAULTS = "tests/faults/"
JUDGED_BY_SPARK = {
    "test_what_a_receipt_names_is_taken_back_and_nothing_else",
    "test_what_was_rewritten_is_taken_back_also_while_the_proxy_is_dead",
    "test_a_full_partition_is_read_on_as_room_is_made_and_all_arrive_once",
    "test_broker_away_for_a_minute_costs_nothing_but_time",
    "test_broker_away_for_a_while_costs_nothing_but_time",
    "test_killed_again_and_again_for_ten_minutes",
    "test_killed_many_times_at_random_moments_under_load",
    "test_everything_that_can_happen_to_three_brokers_and_two_proxies",
    "test_one_joins_and_leaves_and_another_joins_and_is_killed",
    "test_proxy_killed_again_and_again_under_every_kind_of_request",
    "test_worker_that_dies_is_started_anew_and_a_dead_parent_leaves_none_behind",
}
"""Of the fault tests, those that end with the audit."""
SEVERAL_BROKERS = (
    "tests/faults/test_unavailable_targets.py",
    "tests/integration/test_group_owners.py",
    "tests/integration/test_kafka_cluster.py",
)
"""Files that start a cluster. So does a test that Spark judges: two at once starve each other."""
QUICK = ("tests/chart/", "tests/property/", "tests/unit/")
NOT_QUICK = ("rest", "slow", "long")
SLOWEST_FIRST = (SPARK, FAULTS, "tests/integration/", "tests/property/", "")
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
"""A broker of the tests does not live long enough for the second one to pay. Spark's does."""
os.environ.setdefault("JDK_JAVA_OPTIONS", ONE_COMPILER)
FEW_COLLECTIONS = (
    "-XX:+UseSerialGC -Xms1g -Xmn600m -XX:MetaspaceSize=512m -XX:ReservedCodeCacheSize=512m"
)
"""Of garbage, in Spark's process. The tests leave it little, but many classes and much compiled
code: of that one compiler alone has 48 MB, and each time a part of it is full all is collected."""
os.environ.setdefault("SPARK_SUBMIT_OPTS", FEW_COLLECTIONS)
use_named_kafka()
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
"""How long an example takes says more of the machine than of the code."""
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
"""A program compiled for each step, and a plan made again after each, take far longer than a few
records do."""
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}


class StartBroker(Protocol):
    """What `own_broker` gives: starts a broker in the data folder of that name."""

    def __call__(
        self, name: str = "own", *, port: int = 0, overrides: Mapping[str, str] | None = None
    ) -> EmbeddedBroker: ...


class TwoSparkSessions(LoadFileScheduling):  # type: ignore[misc]
    """What shares a module's story stays on one worker; all that need Spark share two sessions, and
    clusters, of brokers or of Spark's, run one at a time.

    What takes longest begins first, so that no worker is left alone with it at the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(SPARK) and not nodeid.startswith(SPARK_CLUSTERS):
            return SPARK
        is_heavy = may_use_spark(nodeid) or nodeid.startswith(SEVERAL_BROKERS)
        return SPARK_CLUSTERS if is_heavy else str(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=_place_in_line), last=False)
        super()._assign_work_unit(node)


def _place_in_line(scope: str) -> int:
    return next(n for n, folder in enumerate(SLOWEST_FIRST) if scope.startswith(folder))


def may_use_spark(nodeid: str) -> bool:
    """Whether the test runs on a worker that has a session."""
    name = nodeid.rpartition("::")[2].partition("[")[0]
    return nodeid.startswith(SPARK) or (nodeid.startswith(FAULTS) and name in JUDGED_BY_SPARK)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TwoSparkSessions | None:
    """For `--dist loadfile`, as `make test` and `make test-all` run."""
    return TwoSparkSessions(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs no broker; no test may start a session on a third worker."""
    for item in items:
        if item.nodeid.startswith(QUICK) and not any(map(item.get_closest_marker, NOT_QUICK)):
            item.add_marker("quick")
        asks = "spark" in getattr(item, "fixturenames", ())
        if asks and not may_use_spark(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} asks for Spark: name it in JUDGED_BY_SPARK")


@pytest.fixture(autouse=True)
def process_of_its_own() -> Iterator[None]:
    """Undo what a command or a worker that runs within a test sets for its whole process.

    These are the mode of new files, where logs go (the captured stderr, which is closed later),
    the garbage collector and how often threads take turns. With the collector left off, a process
    of the tests keeps every client that it ever made.
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
    """Bootstrap servers of the broker all tests of the session share.

    `KAFKA_BOOTSTRAP_SERVERS` names one; else a container where Docker answers; else the embedded
    broker. Use topics of your own: `tests.support.records.new_topic`.
    """
    with any_broker(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts embedded brokers that a test may stop, kill and start again.

    `own_broker("name", port=..., overrides={...})`: the same name gives the same data folder.
    What still runs when the test ends is killed.
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
    """A session on this machine with two cores and as many shuffle partitions.

    Starting one takes longer than most tests: there are two for all (`TwoSparkSessions`).
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
    """The session runs as it does outside the tests, for what is to hold there."""
    _set(spark, AS_ELSEWHERE)
    yield
    _set(spark, FOR_FEW)


def _set(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)


@pytest.fixture
def auditor(spark: SparkSession, tmp_path: Path) -> Auditor:
    """The Spark audit, for what a test has done."""
    from tests.support.oracle.auditor import Auditor

    return Auditor(spark, tmp_path)
