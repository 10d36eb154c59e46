"""Fixtures every test may ask for: a broker to share, and brokers to maltreat."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import structlog
from xdist.scheduler import LoadFileScheduling

from proxy.embedded import EmbeddedBroker
from tests.support.broker import any_broker

SPARK = "tests/spark/"


class StartBroker(Protocol):
    """What `own_broker` gives: starts a broker in the data folder of that name."""

    def __call__(
        self, name: str = "own", *, port: int = 0, overrides: Mapping[str, str] | None = None
    ) -> EmbeddedBroker: ...


class OneSparkSession(LoadFileScheduling):  # type: ignore[misc]
    """What shares a module's story stays on one worker; all that need Spark share one session."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return SPARK if file.startswith(SPARK) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSparkSession | None:
    """For `--dist loadfile`, as `make test` runs."""
    return OneSparkSession(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def logs_of_its_own() -> Iterator[None]:
    """A command run within a test sets up the logs to go to its captured, later closed, stderr."""
    yield
    structlog.reset_defaults()


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
