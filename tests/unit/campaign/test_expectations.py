"""Expected verdicts of planted faults whose history gives a second reason."""

from __future__ import annotations

from random import Random

import pytest

from tools.campaign.campaign import Chunk, Faulty, Figures, check
from tools.campaign.contents import Ended
from tools.campaign.judging import Said
from tools.campaign.operators.catalogue import OPERATORS
from tools.campaign.operators.operator import UNSETTLED, Planted, Planting
from tools.campaign.played_run import played

SEED = 9
OF_CANCEL = frozenset({"dead_lettered", "missing"})
CONTRADICTED = frozenset({"contradicted"})


def _places(number: int, name: str, run: int = 0) -> tuple[Planting, dict[str, Ended]]:
    planting = Planting(played(SEED, number, run), Random(number))
    return planting, {one.origin: one for one in OPERATORS[name].places(planting)}


def _planted(number: int, name: str, at: str, run: int = 0) -> tuple[Planting, Planted]:
    planting, places = _places(number, name, run)
    return planting, OPERATORS[name].plant(planting, places[f"timer.ingress/{at}"])


@pytest.mark.parametrize(
    ("at", "may_be"),
    [("1/1", OF_CANCEL), ("1/8", OF_CANCEL | CONTRADICTED)],
    ids=["due before what the purge names", "due when the purge means it"],
)
def test_after_an_ignored_cancel_a_purge_speaks_against_what_it_means_alone(
    at: str, may_be: frozenset[str]
) -> None:
    _, planted = _planted(162, "cancel-ignored-and-buried", at)
    assert planted.sides[f"timer.ingress/{at}"] == may_be


@pytest.mark.parametrize(
    ("number", "at", "others"),
    [(102, "1/15", ["1/22"]), (27, "1/18", [])],
    ids=["another recall", "a rollback means no such record"],
)
def test_what_missed_a_record_that_waited_on_is_contradicted_as_the_ignored_cancel_is(
    number: int, at: str, others: list[str]
) -> None:
    _, planted = _planted(number, "cancel-ignored-and-buried", at)
    assert planted.sides.keys() == {f"timer.ingress/{one}" for one in (at, *others)}


def test_half_message_is_planted_as_delivered_after_it_was_read() -> None:
    planting, _ = _planted(231, "expired-and-delivered", "0/20")
    half = planting.places[0, 20]
    (delivery,) = [
        held
        for held in planting.contents.others
        if held.text("timer-origin") == half.origin and held.topic.startswith("orders-")
    ]
    read_ms = planting.read_ms(half)
    assert read_ms is not None
    assert delivery.timestamp_ms > read_ms > half.first_ms


def test_retry_that_failed_too_often_asks_for_no_later_time() -> None:
    planting, places = _places(394, "ingress-due-changed")
    given_up = planting.places[0, 6]
    assert given_up.delivery.topic.startswith("dlq.")
    assert places
    assert given_up.origin not in places


def test_what_was_purged_before_its_due_need_not_have_ended_without_that_purge() -> None:
    _, planted = _planted(1, "outcome-unknown", "1/11")
    assert planted.sides["timer.ingress/1/8"] == CONTRADICTED | {UNSETTLED}
    assert planted.sides["timer.ingress/1/10"] == CONTRADICTED


def test_move_that_does_not_say_that_it_missed_is_one_too_many() -> None:
    _, planted = _planted(84, "outcome-unknown", "1/6")
    assert planted.sides["timer.ingress/1/5"] == frozenset({"duplicated"})


@pytest.mark.parametrize(("mode", "is_right"), [("batch", False), ("follow", True)])
def test_what_need_not_have_ended_may_be_pending_where_only_that_is_judged(
    mode: str, is_right: bool
) -> None:
    planting, planted = _planted(1, "outcome-unknown", "3/11", run=1)
    (purge,) = planted.expected
    cancelled, wrong = Said("cancelled", False, ""), Said("contradicted", True, "")
    before = {f"timer.ingress/1/{offset}": cancelled for offset in (8, 10, 11)}
    after = {"timer.ingress/3/8": Said("pending", False, ""), "timer.ingress/3/10": wrong}
    faulty = Faulty(1, planting.contents, OPERATORS["outcome-unknown"], planted)
    figures = Figures()
    check(Chunk([], [faulty]), mode, {**before, **after, purge: wrong}, figures)
    assert [one.origin for one in figures.wrong] == ([] if is_right else ["timer.ingress/1/8"])
