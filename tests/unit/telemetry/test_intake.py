"""Read records count once, and impossible times are named in the log."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from proxy.cli.send import _when
from proxy.protocol.body import IngressPartition, Message
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import RequestReader
from proxy.telemetry.collectors import WARN_EVERY_S, Intake
from tests.support.simulation.stand_in import Record

NOW_MS = 1_800_000_000_000
INGRESS = IngressPartition("timer.ingress", 0)


class NoMetrics:
    def ingested(self, *_: Any) -> None:
        """Ingest without counting."""


def record(offset: int, target: str, deliver_at: str) -> Message:
    headers: list[tuple[str, bytes | None]] = [
        ("timer-topic", target.encode()),
        ("timer-deliver-at", deliver_at.encode()),
    ]
    return cast("Message", Record("timer.ingress", 0, offset, b"k", b"v", headers, NOW_MS))


def warned(intake: Intake, *messages: Message) -> list[str]:
    with capture_logs() as lines:
        intake.count(INGRESS, messages, RequestReader(Policy()).read_batch(messages))
    return [line["target"] for line in lines]


def test_a_time_in_seconds_is_named_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr("proxy.telemetry.collectors.time.monotonic", lambda: now_s[0])
    intake = Intake(cast(Any, NoMetrics()), cast(Any, NoMetrics()))
    assert not warned(intake, record(0, "orders", str(NOW_MS - 86_400_000)))
    assert warned(intake, record(1, "a", str(NOW_MS)), record(2, "b", "1800000000")) == ["b"]
    assert not warned(intake, record(3, "c", "1800000000"))
    now_s[0] += WARN_EVERY_S
    assert warned(intake, record(4, "c", "1800000000")) == ["c"]


def test_send_says_what_a_time_in_seconds_is_read_as() -> None:
    assert "1970-01-2" in _when(1_800_000_000)
    assert "milliseconds" in _when(1_800_000_000)
