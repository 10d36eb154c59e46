"""Paused records on the stand-in Kafka: paused and released once
(docs/exactly-once.md#paused-targets)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from proxy.config.settings import Resumed
from proxy.dispatch import paused_records
from proxy.dispatch.known_targets import record_batch_bytes
from proxy.dispatch.release_control import RELEASED_FOR_MS, ReleaseControl
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import DEAD_LETTERS, World
from tests.unit.session.test_pipeline_recalls import outcomes

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def paused_world(count: int = 1, *, hours: int = 5, bodies: str = "local") -> World:
    """Return a world after hours of a pause, with records due one a second, the last one first."""
    world = World()
    world.bodies = bodies
    world.release.pause(["orders"])
    for number in range(count):
        due_ms = world.time.wall_now_ms + (count - number) * 1_000
        world.send({"timer-topic": "orders", "timer-deliver-at": str(due_ms)})
    for _ in range(10):
        world.settle()
        world.time.pass_ms(hours * HOUR_MS // 10)
    world.settle()
    assert world.delivered() == []
    return world


def resume(world: World, per_second: int | None = None) -> None:
    world.release.pause([], {"orders": Resumed(world.time.wall_now_ms, per_second)})


def refuse_moves(world: World, *, fewer_bytes: int = 0) -> None:
    paused = world.kafka.read(INGRESS)[-1]
    size_bytes = record_batch_bytes(paused.key_, paused.value_, paused.headers_)
    world.kafka.max_record_bytes[INGRESS] = size_bytes - fewer_bytes


def written(world: World) -> int:
    return len(world.kafka.read(INGRESS))


@pytest.mark.parametrize("bodies", ["local", "kafka"])
def test_a_record_is_written_twice_however_long_the_pause(bodies: str) -> None:
    world = paused_world(20, hours=500, bodies=bodies)
    assert written(world) == 40
    resume(world)
    world.settle()
    assert written(world) == 60
    assert len(world.delivered()) == 20
    assert {what for what, _ in outcomes(world).values()} == {"requeued"}


def test_what_was_paused_goes_in_the_order_of_its_due_and_says_where_it_came_from() -> None:
    world = paused_world(10)
    resume(world)
    world.settle()
    dues = [int(record.header("timer-due") or 0) for record in world.delivered()]
    assert dues == sorted(dues)
    firsts = [record.header("timer-first-origin") for record in world.delivered()]
    assert firsts == [f"{INGRESS}/0/{n}".encode() for n in reversed(range(10))]


def test_it_goes_at_the_rate_that_was_chosen() -> None:
    world = paused_world(30)
    resume(world, 10)
    came: list[int] = []
    for _ in range(40):
        world.settle()
        came.append(len(world.delivered()))
        world.time.pass_ms(100)
    assert came[-1] == 30
    assert all(later - earlier <= 11 for earlier, later in zip(came, came[10:], strict=False))


def test_a_worker_that_starts_after_the_pause_lets_go_what_it_held_back() -> None:
    world = paused_world(5)
    world.crash()
    resume(world)
    world.settle()
    assert len(world.delivered()) == 5


def test_a_crash_while_it_is_let_go_loses_and_repeats_nothing() -> None:
    world = paused_world(30)
    resume(world, 10)
    for _ in range(60):
        world.turn(2)
        world.crash()
        world.time.pass_ms(200)
    world.settle()
    origins = [record.header("timer-first-origin") for record in world.delivered()]
    assert (len(origins), len(set(origins))) == (30, 30)


def test_what_is_paused_as_the_pause_ends_is_not_forgotten() -> None:
    """It is being rewritten, and read only after the scan of the store."""
    world = World()
    world.release.pause(["orders"])
    world.send({"timer-topic": "orders"})
    world.turn()
    resume(world)
    world.settle()
    assert len(world.delivered()) == 1


def test_each_is_let_go_once_though_others_arrive_one_by_one_meanwhile() -> None:
    """They are paused as the pause ends. The moves of earlier ones lie behind them."""
    world = World()
    world.batch_records = 1
    world.release.pause(["orders"])
    for _ in range(20):
        world.send({"timer-topic": "orders", "timer-delay": "1m"})
    world.settle()
    world.time.pass_ms(60_000)
    world.turn()
    assert written(world) == 40
    resume(world)
    world.settle()
    assert (len(world.delivered()), written(world)) == (20, 60)


def resumed_one_after_the_other() -> World:
    """Return a world with ten records for each of two targets. The moves of the first are unread at
    the second resume, which scans the store again."""
    world = World()
    world.batch_records = 1
    world.kafka.topics["bills"] = 4
    world.release.pause(["orders", "bills"])
    for number in range(20):
        world.send({"timer-topic": ("orders", "bills")[number % 2]})
    world.settle()
    first = {"orders": Resumed(world.time.wall_now_ms)}
    world.release.pause(["bills"], first)
    world.turn(3)
    assert written(world) == 50
    assert len(world.delivered()) < 10
    world.release.pause([], {**first, "bills": Resumed(world.time.wall_now_ms)})
    world.settle()
    return world


def test_each_is_let_go_once_though_another_pause_ends_meanwhile() -> None:
    world = resumed_one_after_the_other()
    assert (len(world.delivered()), len(world.delivered("bills")), written(world)) == (10, 10, 60)


def test_a_move_too_many_to_be_known_is_made_twice_and_ends_once_as_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paused_records, "MOST_UNREAD", 6)
    world = resumed_one_after_the_other()
    assert (len(world.delivered()), len(world.delivered("bills"))) == (10, 10)
    missed = [what for what, _ in outcomes(world).values() if what == "missed"]
    assert len(missed) == written(world) - 60 == 1


def test_what_the_settings_refuse_when_it_is_let_go_is_one_dead_letter() -> None:
    world = paused_world(3)
    world.stop()
    world.policy = replace(world.policy, deny=("orders",))
    resume(world)
    world.settle()
    assert len(world.kafka.read(DEAD_LETTERS)) == 3
    world.time.pass_ms(9 * DAY_MS)
    world.settle()
    assert len(world.kafka.read(DEAD_LETTERS)) == 3
    assert world.delivered() == []
    ends = Counter(what for what, _ in outcomes(world).values())
    assert ends == {"requeued": 6, "dead-lettered": 3}


def test_what_another_pause_means_stays() -> None:
    world = World()
    world.release.pause(["orders", "ord*"])
    world.send({"timer-topic": "orders"})
    world.settle()
    world.release.pause(["ord*"])
    world.settle()
    assert world.delivered() == []
    world.release.pause([])
    world.settle()
    assert len(world.delivered()) == 1


def test_where_the_pause_is_forgotten_it_goes_as_it_is_rewritten_next() -> None:
    world = World()
    world.policy = replace(world.policy, roll_after_ms=DAY_MS)
    world.release.pause(["orders"])
    world.send({"timer-topic": "orders"})
    world.settle()
    world.crash()
    world.release.pause([], {"orders": Resumed(world.time.wall_now_ms - RELEASED_FOR_MS)})
    world.settle()
    assert world.delivered() == []
    world.time.pass_ms(DAY_MS)
    world.settle()
    assert len(world.delivered()) == 1


def test_a_pause_longer_than_records_may_lie_in_the_ingress_rewrites_them_in_time() -> None:
    world = World()
    world.policy = replace(world.policy, roll_after_ms=DAY_MS)
    world.release.pause(["orders"])
    world.send({"timer-topic": "orders"})
    for _ in range(3):
        world.settle()
        world.time.pass_ms(DAY_MS)
    world.settle()
    said = [what for what, _ in outcomes(world).values()]
    assert said == ["requeued", "rolled", "rolled", "rolled"]
    resume(world)
    world.settle()
    assert len(world.delivered()) == 1


def test_what_was_cancelled_meanwhile_is_not_let_go() -> None:
    world = World()
    world.release.pause(["orders"])
    world.send({"timer-topic": "orders", "timer-id": "a"})
    world.send({"timer-topic": "orders"})
    world.settle()
    world.send({"timer-cancel": "a"})
    world.purge("orders")
    world.settle()
    resume(world)
    world.settle()
    assert world.delivered() == []
    assert sorted({what for what, _ in outcomes(world).values()}) == [
        "applied",
        "cancelled",
        "requeued",
    ]


def test_what_a_pause_long_over_still_holds_back_goes_at_its_rate() -> None:
    world = paused_world(3)
    world.crash()
    world.release.pause([], {"orders": Resumed(world.time.wall_now_ms - RELEASED_FOR_MS, 1)})
    came = []
    for _ in range(4):
        world.settle()
        came.append(len(world.delivered()))
        world.time.pass_ms(1_000)
    assert came == [0, 1, 2, 3]


def test_a_rate_slower_than_the_roll_window_delivers_everything_at_that_rate() -> None:
    world = World()
    world.policy = replace(world.policy, roll_after_ms=20_000)
    world.release.pause(["orders"])
    for _ in range(200):
        world.send({"timer-topic": "orders"})
        world.time.pass_ms(100)
        world.turn(3)
    resume(world, 4)
    came = []
    for _ in range(11):
        came.append(len(world.delivered()))
        for _ in range(50):
            world.time.pass_ms(100)
            world.turn(3)
    assert all(20 * number - 2 <= n <= 20 * number + 1 for number, n in enumerate(came))
    world.time.pass_ms(1_000)
    world.turn(3)
    assert len(world.delivered()) == 200
    assert written(world) < 200 * 5
    assert {what for what, _ in outcomes(world).values()} == {"requeued", "rolled"}


def two_resumed(per_second: int | None, batch_records: int = 1_000) -> World:
    world = World(targets=("orders", "bills"))
    world.batch_records = batch_records
    world.release.pause(["orders", "bills"])
    for number in range(200):
        world.send({"timer-topic": ("orders", "bills")[number % 2]})
    world.settle()
    world.time.pass_ms(100)
    at_ms = world.time.wall_now_ms
    world.release.pause([], {"orders": Resumed(at_ms, 1), "bills": Resumed(at_ms, per_second)})
    return world


@pytest.mark.parametrize(("per_second", "within_s"), [(None, 1), (50, 3)])
def test_a_slow_resume_holds_up_no_other(per_second: int | None, within_s: int) -> None:
    world = two_resumed(per_second)
    for _ in range(within_s * 10):
        world.time.pass_ms(100)
        world.turn(3)
    assert len(world.delivered("bills")) == 100
    assert len(world.delivered("orders")) <= within_s


def test_another_resume_counts_for_what_still_waits_in_the_queue() -> None:
    world = two_resumed(None)
    world.turn(5)
    world.time.pass_ms(1)
    world.release.pause([], {"orders": Resumed(world.time.wall_now_ms, 10)})
    for _ in range(52):
        world.turn(3)
        world.time.pass_ms(100)
    assert 49 <= len(world.delivered("orders")) <= 52
    world.release.pause([], {"orders": Resumed(world.time.wall_now_ms)})
    for _ in range(5):
        world.turn(3)
        world.time.pass_ms(20)
    assert len(world.delivered("orders")) == 100


def test_another_resume_counts_for_what_is_on_its_way_into_the_queue() -> None:
    """The moves of the first resume are unread at the scan for the second."""
    world = two_resumed(None, batch_records=1)
    world.turn(2)
    assert written(world) > world.shards[0].next_offset + 100
    world.time.pass_ms(20)
    world.release.pause([], {"orders": Resumed(world.time.wall_now_ms)})
    for _ in range(300):
        world.turn()
        world.time.pass_ms(5)
    assert len(world.delivered("orders")) == 100


def test_places_that_passed_while_no_proxy_ran_do_not_come_at_once() -> None:
    world = two_resumed(None)
    world.turn(5)
    world.crash()
    release = ReleaseControl()
    release.pause([], {"orders": Resumed(world.time.wall_now_ms, 1)})
    world.time.pass_ms(60_000)
    world.release = release
    world.settle()
    assert len(world.delivered("orders")) <= 2
    for _ in range(101):
        world.time.pass_ms(1_000)
        world.turn(3)
    assert len(world.delivered("orders")) == 100


@pytest.mark.parametrize("tells_rules", [True, False])
def test_what_the_ingress_refuses_stays_paused_and_holds_up_no_other(tells_rules: bool) -> None:
    """A move is slightly larger than its record, so it may not fit."""
    world = paused_world(2)
    world.kafka.topics["bills"], world.kafka.tells_rules = 4, tells_rules
    refuse_moves(world)
    resume(world)
    world.send({"timer-topic": "bills"})
    world.settle()
    assert world.origins("bills") == [f"{INGRESS}/0/4"]
    assert (world.delivered(), written(world)) == ([], 5)

    del world.kafka.max_record_bytes[INGRESS]
    world.release.pause(["orders"])
    resume(world)
    world.settle()
    assert len(world.delivered()) == 2


def test_what_the_ingress_refuses_is_not_tried_again_whenever_others_are_paused() -> None:
    world = paused_world(1)
    world.kafka.topics["bills"] = 4
    refuse_moves(world)
    world.release.pause(["bills"], {"orders": Resumed(world.time.wall_now_ms)})
    world.settle()
    with capture_logs() as said:
        for _ in range(3):
            world.send({"timer-topic": "bills"}, value=b"")
            world.settle()
    assert written(world) == 2 + 3 * 2
    assert [line["event"] for line in said if line["event"] == "transaction aborted"] == []


def test_what_the_ingress_takes_no_more_ends_when_it_is_to_be_rewritten() -> None:
    world = World()
    world.policy = replace(world.policy, roll_after_ms=DAY_MS)
    world.release.pause(["orders"])
    world.send({"timer-topic": "orders"})
    world.settle()
    refuse_moves(world, fewer_bytes=20)
    resume(world)
    world.settle()
    assert world.kafka.read(DEAD_LETTERS) == []
    world.time.pass_ms(DAY_MS)
    world.settle()
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert letter.header("timer-error") == b"too-large"
    assert world.delivered() == []
