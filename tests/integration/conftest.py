"""Fixtures of the tests that need proxies and a broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation.installation import Installation


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    """Topics, group and proxies of one test, on the shared broker."""
    made = Installation(kafka, tmp_path)
    yield made
    made.close()
