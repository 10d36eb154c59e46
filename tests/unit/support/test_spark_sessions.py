"""Tests with Spark are scheduled by file, and few workers start a session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.conftest import CLUSTERS, SPARK_SESSIONS, FewSparkSessions, uses_spark

SPARK_FILES = (
    "tests/spark/records/test_murmur2.py",
    "tests/spark/requests/test_times.py",
    "tests/spark/results/test_report.py",
    "tests/spark/verdicts/test_evaluation.py",
)
OTHERS = ("tests/unit/test_extras.py", "tests/unit/spark_jobs/kafka/test_kafka_settings.py")
AUDITED_FAULTS = "tests/faults/test_recalls.py"
WORKERS = 4


class Worker:
    """A worker as the scheduler sees it, with a note of its files."""

    def __init__(self) -> None:
        self.shutting_down, self.files = False, set[str]()
        self.gateway = SimpleNamespace(id="gw")

    def send_runtest_some(self, indices: list[int]) -> None:
        self.files |= {TESTS[index].partition("::")[0] for index in indices}

    def shutdown(self) -> None:
        self.shutting_down = True


TESTS = [f"{file}::test_{n}" for file in (*SPARK_FILES, *OTHERS) for n in range(3)]


def _scheduler() -> FewSparkSessions:
    option = SimpleNamespace(loadscopereorder=False, maxfail=0)
    values: dict[str, Any] = {"tx": ["popen"] * WORKERS, "maxfail": 0}
    config: Any = SimpleNamespace(getvalue=values.get, option=option)
    return FewSparkSessions(config, None)


def test_all_files_are_done_and_few_workers_get_some_that_use_spark() -> None:
    scheduler, workers = _scheduler(), [Worker() for _ in range(WORKERS)]
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        scheduler.add_node_collection(worker, TESTS)
    scheduler.schedule()
    while not scheduler.tests_finished:
        for worker in workers:
            for work in [*scheduler.assigned_work.get(worker, {}).values()]:
                for test in [test for test, is_done in work.items() if not is_done]:
                    scheduler.mark_test_complete(worker, TESTS.index(test))
    done = [file for worker in workers for file in worker.files]
    assert sorted(done) == sorted((*SPARK_FILES, *OTHERS))
    assert sum(bool(worker.files & {*SPARK_FILES}) for worker in workers) == SPARK_SESSIONS


def test_clusters_and_faults_that_the_audit_judges_run_one_after_the_other() -> None:
    scheduler = _scheduler()
    named = [*(name for name in CLUSTERS if name.endswith(".py")), AUDITED_FAULTS]
    assert {scheduler._split_scope(f"{name}::test_it") for name in named} == {CLUSTERS[0]}
    assert uses_spark(AUDITED_FAULTS)
    assert not any(map(uses_spark, OTHERS))
