"""The skip call skips only the unreadable batch."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.admin import targets
from proxy.kafka.unreadable import UnreadableBatch
from tests.support.simulation.admin_api import MadeUpApi

BAD = UnreadableBatch(5, 8, "it does not unpack")
SHOWN = {"partition": 1, "offset": 5, "end": 8, "why": "it does not unpack"}


@pytest.fixture
def made() -> MadeUpApi:
    made = MadeUpApi()
    made.broker.unreadable[1] = BAD
    return made


def skip(made: MadeUpApi, partition: Any, offset: Any, **more: Any) -> tuple[int, Any]:
    return made.ask("/skips", "POST", {"partition": partition, "offset": offset, **more})


def test_the_batch_at_which_reading_fails_is_skipped(made: MadeUpApi) -> None:
    assert skip(made, 1, 5) == (200, {**SHOWN, "dry_run": False, "in_force": True})
    assert made.broker.skips == [(1, BAD)]


def test_a_dry_run_finds_it_and_writes_nothing(made: MadeUpApi) -> None:
    assert skip(made, 1, 5, dry_run=True) == (200, {**SHOWN, "dry_run": True, "in_force": False})
    assert made.broker.skips == []


def test_workers_that_have_not_read_on_yet_are_told(
    made: MadeUpApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "NOTICED_WITHIN_S", 0.01)
    made.next_offsets = [5]
    code, said = skip(made, 1, 5)
    assert (code, said["in_force"]) == (202, False)


@pytest.mark.parametrize(
    ("partition", "offset", "code", "error"),
    [
        (0, 5, 409, "readable"),
        (1, 4, 409, "other-batch"),
        (1, 6, 409, "other-batch"),
        (1, 8, 409, "other-batch"),
        (-1, 5, 400, "bad-request"),
        (1, -5, 400, "bad-request"),
        ("1", 5, 400, "bad-request"),
    ],
)
def test_what_is_not_that_batch_is_refused(
    made: MadeUpApi, partition: Any, offset: Any, code: int, error: str
) -> None:
    refused, said = skip(made, partition, offset)
    assert (refused, said["error"]) == (code, error)
    assert made.broker.skips == []
