"""An unavailable peer is left out of the comparison, with one sentence of explanation."""

import os
from pathlib import Path

import numpy as np
import pytest

from proxy.embedded.jars import JarsUnavailable
from tools.benchmarks.keys import write_keys
from tools.benchmarks.peers import etf1, rocketmq
from tools.benchmarks.peers.scheduler import PeerMissing


def test_without_go_etf1_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(PeerMissing, match="there is no `go` on the PATH"):
        etf1.version()


def test_where_the_module_cannot_be_had_etf1_is_left_out_with_the_reason_of_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho looking >&2\necho '403 Forbidden' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    with pytest.raises(PeerMissing, match="`go install` says: 403 Forbidden"):
        etf1.version()


def test_where_the_jars_cannot_be_had_rocketmq_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> list[Path]:
        raise JarsUnavailable("no network")

    monkeypatch.setattr(rocketmq, "rocketmq_jars", unreachable)

    with pytest.raises(PeerMissing, match="RocketMQ is left out: Jars could not be fetched"):
        rocketmq.version()


@pytest.mark.parametrize(("due_ms", "due_s"), [(5_000, "5"), (5_001, "6"), (5_999, "6")])
def test_what_etf1_is_asked_for_is_never_before_the_due(due_ms: int, due_s: str) -> None:
    (key,) = write_keys(7, np.array([due_ms]))

    name, request = etf1.translated(
        key, [("timer-topic", b"orders"), ("timer-deliver-at", b"%d" % due_ms)]
    )

    assert name == "orders-7"
    assert dict(request) == {
        "scheduler-epoch": due_s,
        "scheduler-target-topic": "orders",
        "scheduler-target-key": key,
    }
