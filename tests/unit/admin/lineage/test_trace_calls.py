"""The trace call of the admin API: its queries, answers, and concurrency limit."""

from __future__ import annotations

import threading

import pytest

from proxy.admin.calls import READINGS_AT_ONCE as AT_ONCE
from proxy.admin.problem import Problem
from proxy.dead_letters.letter import Origin
from tests.support.simulation.admin_api import MadeUpApi

PATH = "/records/timer.ingress/0/5/trace"
HERE = Origin("timer.ingress", 0, 5)


def test_a_trace_is_told_as_data_with_times_in_epoch_ms() -> None:
    made = MadeUpApi()
    code, told = made.ask(PATH)
    assert code == 200
    assert made.traces.asked == [(HERE, 10, 600_000)]
    assert (told["state"], told["is_whole"], told["unknown"]) == ("pending", True, [])
    assert told["steps"][0] == {
        "time_ms": 1_000,
        "what": "ingested",
        "where": str(HERE),
        "detail": "for orders",
        "origin": str(HERE),
        "due_ms": 6_000,
        "late_ms": None,
    }


def test_what_was_not_read_in_time_is_said() -> None:
    made = MadeUpApi()
    made.traces.is_whole = False
    code, told = made.ask(f"{PATH}?wait=1s&retries_within=2h")
    assert made.traces.asked == [(HERE, 1, 7_200_000)]
    assert (code, told["is_whole"]) == (200, False)
    assert told["unknown"] == ["What came after the last step."]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("/records/timer.ingress/x/5/trace", "topic/partition/offset"),
        (f"{PATH}?wait=31s", "from 0s to 30s"),
        (f"{PATH}?retries_within=soon", "retries_within"),
        (f"{PATH}?body=true", "Known names: wait, retries_within"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(url: str, found: str) -> None:
    made = MadeUpApi()
    code, said = made.ask(url)
    assert code == 400
    assert found in said["detail"]
    assert made.traces.asked == []


def test_few_records_are_traced_at_a_time_and_the_next_one_has_its_turn_later() -> None:
    made = MadeUpApi()
    made.traces.go_on.clear()
    threads = [threading.Thread(target=made.ask, args=(PATH,)) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
        made.traces.begun.acquire()
    code, said = made.ask(PATH)
    assert (code, said["error"]) == (503, "busy")
    made.traces.go_on.set()
    for thread in threads:
        thread.join()
    assert made.ask(PATH)[0] == 200


def test_a_trace_that_is_refused_leaves_room_for_others() -> None:
    made = MadeUpApi()
    made.traces.refusal = Problem(404, "not-found", "No record lies there.")
    for _ in range(AT_ONCE + 1):
        assert made.ask(PATH)[0] == 404
