"""Fixtures of the fault tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation.installation import Installation


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka, tmp_path)
    yield made
    made.close()
