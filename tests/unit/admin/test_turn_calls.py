"""The call that shows the last minute of the loops."""

from __future__ import annotations

import pytest

from tests.support.simulation.admin_api import MadeUpApi


def test_each_worker_that_says_something_is_shown_by_its_name_and_others_are_named() -> None:
    made = MadeUpApi()
    made.workers.loop.turn(fetched=3, put=0.25)
    code, said = made.ask("/turns")
    assert (code, said["silent"]) == (200, ["1"])
    (worker,) = said["workers"]
    assert (worker["worker"], worker["turns"], worker["fetched"]) == ("0", 2, 3)
    assert (worker["longest"][0]["steps"]["put"], worker["busy"]["max_ms"]) == (250.0, 250.0)
    assert "rows" not in worker
    assert made.workers.asked == [], "the loop is not asked"


def test_with_rows_each_turn_is_shown() -> None:
    made = MadeUpApi()
    for number in range(5):
        made.workers.loop.turn(fetched=number, put=0.001)
    (worker,) = made.ask("/turns?rows=true")[1]["workers"]
    rows = worker["rows"]
    assert rows["fetched"] == [0, 0, 1, 2, 3, 4]
    assert {len(column) for column in rows.values()} == {6}


@pytest.mark.parametrize("query", ["rows=1", "rows=", "row=true"])
def test_what_is_not_known_is_refused(query: str) -> None:
    code, said = MadeUpApi().ask(f"/turns?{query}")
    assert (code, said["error"]) == (400, "bad-request")


def test_where_no_worker_says_anything_there_is_no_answer() -> None:
    made = MadeUpApi()
    made.workers.is_silent = True
    code, said = made.ask("/turns")
    assert (code, said["error"]) == (503, "no-answer")
