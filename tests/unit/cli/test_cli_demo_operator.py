"""The demo's operator takes no answer for a success that is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proxy.cli.trial.demo import operator_calls
from proxy.cli.trial.demo.operator_calls import CallFailed, OperatorCalls

Act = Callable[[OperatorCalls], Any]
NOT_DONE: dict[str, tuple[Act, dict[str, Any]]] = {
    "pause": (lambda calls: calls.pause("bills"), {"in_force": False}),
    "resume": (lambda calls: calls.resume("bills", 5), {"in_force": False}),
    "reschedule": (lambda calls: calls.reschedule("t/0/1", 9), {"outcome": "missed"}),
    "unknown yet": (lambda calls: calls.reschedule("t/0/1", 9), {"outcome": None}),
    "purge": (lambda calls: calls.purge("bills"), {"applied": False, "purges": ["t/0/2"]}),
}


def answer_with(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> None:
    monkeypatch.setattr(operator_calls, "ask", lambda *_, **__: said)


@pytest.mark.parametrize(("act", "said"), NOT_DONE.values(), ids=NOT_DONE)
def test_what_does_not_count_yet_fails(
    monkeypatch: pytest.MonkeyPatch, act: Act, said: dict[str, Any]
) -> None:
    answer_with(monkeypatch, said)
    with pytest.raises(CallFailed, match="The proxy has answered, but "):
        act(OperatorCalls(9464, None))


def test_what_is_done_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = OperatorCalls(9464, None)
    answer_with(monkeypatch, {"applied": True, "purges": ["t/0/2", "t/1/3"]})
    assert calls.purge("bills") == ["t/0/2", "t/1/3"]
    answer_with(monkeypatch, {"records": 12, "dry_run": True})
    assert calls.count_purged("bills") == 12
