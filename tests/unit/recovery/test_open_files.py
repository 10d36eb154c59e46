"""The limit of open files is raised, and reported if low."""

import resource
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from proxy.recovery.local_state import (
    FILES_BESIDE,
    FILES_EACH,
    raise_open_files,
    warn_of_few_open_files,
)

FEW = 512


@pytest.fixture(autouse=True)
def _few_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_process_takes_as_many_as_the_system_allows() -> None:
    raise_open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard


def test_too_few_for_all_partitions_are_said_with_what_to_do() -> None:
    with capture_logs() as lines:
        warn_of_few_open_files((FEW - FILES_BESIDE) // FILES_EACH)
        assert lines == []
        warn_of_few_open_files(1_000)
    assert lines[0]["allowed"] == FEW
    assert str(FILES_BESIDE + 1_000 * FILES_EACH) in lines[0]["remedy"]
