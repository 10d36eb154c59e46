"""A wrong clock in a whole proxy: some records are late, none early."""

from __future__ import annotations

import pytest
import structlog

from proxy.clock import CONFIRMED_AFTER_MS
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.world import DEAD_LETTERS, OUTCOMES, World

HOUR_MS = 3_600_000


def after(delay: str) -> dict[str, str | bytes]:
    return {"timer-topic": "orders", "timer-delay": delay}


def test_a_machine_whose_clock_is_behind_lets_newcomers_wait_rather_than_fire_early() -> None:
    world = World()
    world.send(after("0"))
    world.time.pass_ms(60_000)
    world.settle()
    world.crash()
    world.time.step_ms(-30_000)
    world.send({"timer-topic": "orders", "timer-deliver-at": str(START_MS + 40_000)})
    world.settle()
    assert len(world.delivered()) == 1
    world.time.pass_ms(9_999)
    world.settle()
    assert len(world.delivered()) == 1
    world.time.pass_ms(1)
    world.settle()
    assert len(world.delivered()) == 2


def test_a_clock_that_is_ahead_at_the_start_fires_on_time_by_the_broker_s() -> None:
    world = World()
    world.time.step_ms(3_600_000)
    world.send(after("30m"))
    world.send(after("1s"))
    world.settle()
    assert world.delivered() == []
    world.time.pass_ms(999)
    world.settle()
    assert world.delivered() == []
    world.time.pass_ms(1)
    world.settle()
    assert world.origins() == ["timer.ingress/0/1"]
    assert world.positions()[0].watermark_ms == START_MS + 1_000


def test_a_forward_jump_of_the_clock_is_not_believed_however_long_it_lasts() -> None:
    world = World()
    world.send(after("1h"))
    world.settle()
    world.time.step_ms(3_600_000)
    world.settle()
    world.time.pass_ms(3_599_999)
    world.settle()
    assert world.delivered() == []
    world.time.pass_ms(1)
    world.settle()
    assert len(world.delivered()) == 1


def test_a_jump_is_believed_once_it_has_lasted_where_the_broker_cannot_be_asked() -> None:
    world = World()
    world.asks_broker_time = False
    world.send(after("1h"))
    world.settle()
    world.time.step_ms(3_600_000)
    world.settle()
    assert world.delivered() == []
    world.time.pass_ms(CONFIRMED_AFTER_MS)
    world.settle()
    assert len(world.delivered()) == 1


def test_the_broker_s_own_timestamp_confirms_at_once_that_the_machine_has_slept() -> None:
    world = World()
    world.send(after("1h"))
    world.settle()
    world.time.sleep_ms(3_600_000)
    world.settle()
    assert world.delivered() == []
    world.send(after("1h"))
    world.turn(2)
    assert len(world.delivered()) == 1


def a_world_whose_watermark_lies_an_hour_ahead() -> World:
    """Return a world whose first record was an hour early. The second is pending."""
    world = World()
    world.asks_broker_time = False
    world.send(after("1h"))
    world.send(after("2h"))
    world.settle()
    world.time.step_ms(HOUR_MS)
    world.time.pass_ms(CONFIRMED_AFTER_MS)
    world.settle()
    world.time.pass_ms(CONFIRMED_AFTER_MS)
    world.settle()
    assert world.origins() == ["timer.ingress/0/0"]
    world.crash()
    world.asks_broker_time = True
    world.time.step_ms(-HOUR_MS)
    return world


def test_a_watermark_that_lies_ahead_is_said_with_how_far_and_the_remedy() -> None:
    world = a_world_whose_watermark_lies_an_hour_ahead()
    with structlog.testing.capture_logs() as logs:
        world.settle()
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert (line["partition"], line["ahead_ms"]) == (0, HOUR_MS)
    assert line["remedy"].endswith("#a-watermark-lies-ahead")


def test_behind_a_watermark_that_lies_ahead_newcomers_wait_for_their_time() -> None:
    world = a_world_whose_watermark_lies_an_hour_ahead()
    world.send(after("30m"))
    world.send(after("1s"))
    world.time.pass_ms(1_000)
    world.settle()
    assert len(world.delivered()) == 1
    world.time.pass_ms(HOUR_MS)
    world.settle()
    assert world.origins() == [f"timer.ingress/0/{offset}" for offset in (0, 2, 3)]


def test_a_watermark_that_is_set_back_lets_newcomers_come_on_time_and_nothing_twice() -> None:
    world = a_world_whose_watermark_lies_an_hour_ahead()
    world.set_back_watermark = (0,)
    world.send(after("30m"))
    world.send(after("1s"))
    world.time.pass_ms(1_000)
    world.settle()
    assert world.origins() == ["timer.ingress/0/0", "timer.ingress/0/3"]
    world.crash()
    world.set_back_watermark = ()
    world.time.pass_ms(2 * HOUR_MS)
    world.settle()
    assert world.origins() == [f"timer.ingress/0/{offset}" for offset in (0, 3, 2, 1)]
    assert world.positions()[0].set_back is None


@pytest.mark.parametrize("step_ms", [-HOUR_MS - 60_000, HOUR_MS + 60_000], ids=["behind", "ahead"])
def test_all_that_is_written_carries_a_time_that_the_broker_takes(step_ms: int) -> None:
    """The target refuses times that are minutes away from its own."""
    world = World()
    world.time.step_ms(step_ms)
    for topic in ("orders", DEAD_LETTERS, OUTCOMES):
        world.kafka.time_limits[topic] = 60_000, 60_000
    world.send(after("0"))
    world.send({})
    world.time.pass_ms(HOUR_MS + 120_000)
    world.ask_broker_time()
    world.settle()
    written = [*world.delivered(), *world.kafka.read(DEAD_LETTERS), *world.kafka.read(OUTCOMES)]
    assert len(written) == 3
    assert {record.stamp_ms for record in written} == {world.time.broker_now_ms}
    assert [letter.header("timer-error") for letter in world.kafka.read(DEAD_LETTERS)] == [
        b"target-missing"
    ]


def test_a_record_whose_time_is_refused_is_tried_until_the_clock_is_right_again() -> None:
    """The broker cannot be asked, so nobody knows whose clock is wrong."""
    world = World(targets=("orders", "bills"))
    world.asks_broker_time = False
    world.time.step_ms(HOUR_MS + 60_000)
    world.kafka.time_limits["orders"] = 60_000, 60_000
    world.send(after("0"))
    world.send({"timer-topic": "bills", "timer-delay": "0"})
    world.settle()
    assert world.origins("bills") == ["timer.ingress/0/1"]
    for _ in range(30):
        world.time.pass_ms(300_000)
        world.settle()
    assert (world.delivered(), world.kafka.read(DEAD_LETTERS)) == ([], [])
    written = world.kafka.end(0)
    world.stop()
    world.time.step_ms(-HOUR_MS - 60_000)
    world.time.pass_ms(HOUR_MS + 360_000)
    world.settle()
    assert [record.header("timer-first-origin") for record in world.delivered()] == [
        b"timer.ingress/0/0"
    ]
    assert world.kafka.read(DEAD_LETTERS) == []
    assert world.kafka.end(0) == written <= 40, "it is written again after as long as it is late"


def test_an_invalid_record_beside_one_whose_time_is_refused_is_the_only_dead_letter() -> None:
    """The broker's reports call both invalid."""
    world = World(targets=("orders", "bills"))
    world.asks_broker_time = False
    world.time.step_ms(HOUR_MS)
    world.kafka.time_limits["orders"] = 60_000, 60_000
    world.kafka.keyless_refused.add("bills")
    for _ in range(3):
        world.send(after("0"))
        world.send({"timer-topic": "bills", "timer-delay": "0"}, key=None)
        world.send({"timer-topic": "bills", "timer-delay": "0"})
    world.settle()
    letters = world.kafka.read(DEAD_LETTERS)
    assert [letter.header("timer-origin") for letter in letters] == [
        b"timer.ingress/0/1",
        b"timer.ingress/0/4",
        b"timer.ingress/0/7",
    ]
    refused = [detail for _, _, detail in world.ends() if "time-refused" in detail]
    assert len(refused) == 3
    world.time.pass_ms(2_000)
    world.settle()
    assert len(world.delivered("bills")) == 3, "those put off beside the invalid ones"
    assert len(world.kafka.read(DEAD_LETTERS)) == 3
