"""Fixtures of the tests that need proxies and a broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.installation.rights import ASKING


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka, tmp_path)
    yield made
    made.close()


@pytest.fixture
def asking_installation(own_broker: StartBroker, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(own_broker(overrides=ASKING).bootstrap_servers, tmp_path, partitions=1)
    yield made
    made.close()
