"""A worker that has lost its session says so at once, and that it is alive."""

from __future__ import annotations

import gc
import math
import time
from pathlib import Path

import pytest

from proxy.admin.pages import health, readiness
from proxy.config.settings import Settings
from proxy.errors import BrokerRefused
from proxy.publishing.failures import SessionLost
from proxy.session.reporter import AdminSide
from proxy.telemetry.status import ShardStatus, Status
from proxy.worker import worker
from storage.store import TargetCounts

LOST = "the broker is away"
RUNNING = ShardStatus("timer.ingress", 0, "running", 10, 5_000, 7, 3, 0)


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AdminSide:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()

    def lost(*_: object) -> None:
        made.board.show(
            Status((RUNNING,), -1_000.0, True, TargetCounts({"orders": 3}), frozenset({"bills"}))
        )
        raise SessionLost(LOST)

    made = AdminSide.of_new_worker(50)
    monkeypatch.setattr(worker, "open_session", lost)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # it takes seconds in a process of many tests
    return made


def _run_once(side: AdminSide) -> None:
    turns = iter([False, True])
    worker.run_worker(Settings(), 0, lambda: next(turns), side)


def test_without_a_session_a_worker_lives_and_is_not_ready(side: AdminSide) -> None:
    _run_once(side)
    statuses = [side.board.read()]
    code, said = readiness(statuses)
    assert (health(statuses, time.monotonic())[0], code) == (200, 503)
    assert said["reason"].endswith(f". The last session was lost: {LOST}")


def test_without_a_session_nothing_of_the_last_one_is_shown_but_the_pauses(
    side: AdminSide,
) -> None:
    side.metrics.show(due_lag_seconds=0.0)
    _run_once(side)
    shown = {
        (sample.name, *sample.labels.values()): sample.value
        for family in side.metrics.registry.collect()
        for sample in family.samples
    }
    assert shown["delay_proxy_sessions_lost_total",] == 1
    assert shown["delay_proxy_ready",] == 0
    assert math.isnan(shown["delay_proxy_due_lag_seconds",])
    assert not [name for name, *_ in shown if name == "delay_proxy_watermark_seconds"]
    assert side.board.read().paused == {"bills"}


def test_a_heartbeat_before_the_first_report_says_no_more_than_that_the_loop_lives(
    side: AdminSide,
) -> None:
    _run_once(side)
    side.board.heartbeat()
    status = side.board.read()
    assert not status.shards
    assert not status.assigned
    assert status.paused == {"bills"}


def test_an_error_that_nobody_foresaw_ends_the_session_and_not_the_process(
    side: AdminSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library may leave such an error behind. Repeated errors end the process."""
    monkeypatch.setattr(time, "sleep", lambda _s: None)
    monkeypatch.setattr(worker, "open_session", _failing)
    turns = iter([*[False] * worker.DEFECTS_AT_MOST, True])
    worker.run_worker(Settings(), 0, lambda: next(turns), side)
    with pytest.raises(SystemError, match="exception set"):
        worker.run_worker(Settings(), 0, lambda: False, side)


def _failing(*_: object) -> None:
    raise SystemError("isinstance returned a result with an exception set")


def _end_sessions_with(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    coming = iter(errors)

    def lost(*_: object) -> None:
        raise next(coming)

    monkeypatch.setattr(worker, "open_session", lost)
    monkeypatch.setattr(worker, "log_missing_rights", lambda *_: None)
    monkeypatch.setattr(time, "sleep", lambda _s: None)


REFUSED = BrokerRefused("The proxy's user may not write to the topic.", "Grant it Write.")


def test_a_right_that_a_worker_never_had_ends_it(
    side: AdminSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end_sessions_with(monkeypatch, REFUSED)
    with pytest.raises(BrokerRefused):
        _run_once(side)


def test_a_right_that_is_taken_away_is_waited_for(
    side: AdminSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end_sessions_with(monkeypatch, SessionLost("refused"), *[REFUSED] * 20)
    turns = iter([False] * 21 + [True])
    worker.run_worker(Settings(), 0, lambda: next(turns), side)
    assert next(turns, None) is None
