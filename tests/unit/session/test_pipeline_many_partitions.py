"""Many partitions on one worker: each loop turn handles only a few."""

from pathlib import Path

import pytest

from proxy.scheduling.shard import Shard
from proxy.session.pacing import (
    BUSY_INTERVAL_MS,
    BUSY_RECORDS,
    IDLE_AT_ONCE,
    IDLE_COMMIT_MS,
    REST_MS,
)
from proxy.session.pipeline import LONGEST_WAIT_MS, TIDIED_SHARE
from storage.options import Options
from tests.support.simulation.local_store import register_in, store_in
from tests.support.simulation.stand_in import Record, StandInConsumer
from tests.support.simulation.step_counts import step_counts
from tests.support.simulation.world import World

PARTITIONS = 5
NO_TIME_S = -1.0


def send_to_each(world: World, delay: str) -> None:
    for partition in range(PARTITIONS):
        world.send({"timer-topic": "orders", "timer-delay": delay}, partition=partition)


def test_when_planning_takes_too_long_the_shards_left_out_come_first_in_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.session.pipeline.PLAN_S", NO_TIME_S)
    world = World(PARTITIONS)
    for _ in range(2):
        send_to_each(world, "1s")
    world.settle()
    world.time.pass_ms(1_000)
    counts = []
    for _ in range(PARTITIONS):
        world.turn()
        counts.append(len(world.delivered()))
    assert counts == [2, 4, 6, 8, 10]


def test_a_fetch_may_bring_as_much_as_all_shards_have_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = []
    consume = StandInConsumer.consume

    def noting(consumer: StandInConsumer, limit: int, timeout: float) -> list[Record]:
        limits.append(limit)
        return consume(consumer, limit, timeout)

    monkeypatch.setattr(StandInConsumer, "consume", noting)
    monkeypatch.setattr("proxy.session.pacing.FETCHED_A_SHARD", 1_000)
    world = World(PARTITIONS)
    for _ in range(3):
        send_to_each(world, "1s")
        world.turn()
    assert limits[-1] == PARTITIONS * 1_000


@pytest.mark.parametrize("turned", range(PARTITIONS))
def test_a_shard_that_fills_each_transaction_alone_holds_up_no_other(turned: int) -> None:
    world = World(PARTITIONS, limit=2)
    world.turn(turned)
    for number in (3, 3, 3, 3, 3, 3, 0):
        world.send({"timer-topic": "orders", "timer-delay": "1s"}, partition=number)
    world.settle()
    world.time.pass_ms(1_000)
    world.turn(2)
    assert "timer.ingress/0/0" in world.origins()


def test_when_tidying_takes_too_long_each_shard_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.session.pipeline.TIDY_S", NO_TIME_S)
    opens = store_in("wheel", tmp_path, Options(memtable_entries=1, slots=8))
    world = World(PARTITIONS, opens, open_register=register_in(tmp_path))
    send_to_each(world, "1h")
    world.turn(20 * PARTITIONS)
    assert [shard.store.covered for shard in world.shards.values()] == [1] * PARTITIONS
    world.stop()


def test_what_was_left_out_of_tidying_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PARTITIONS)
    world.settle()
    monkeypatch.setattr("proxy.session.pipeline.TIDY_S", NO_TIME_S)
    send_to_each(world, "1h")
    world.turn()
    looked_at = _watched(monkeypatch)
    while len(looked_at) < PARTITIONS - 1:
        assert world.pipeline._wait_ms() == 1
        world.turn()
    assert len(set(looked_at)) == len(looked_at)


def test_while_turns_follow_closely_each_tidies_a_part_of_the_shards_and_all_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(PARTITIONS)
    world.settle()
    tidied = _watched(monkeypatch)
    for _ in range(PARTITIONS):
        for _ in range(BUSY_RECORDS):
            send_to_each(world, "0")
        world.turn()
        world.time.pass_ms(BUSY_INTERVAL_MS)
    assert len(tidied) == PARTITIONS * (1 + PARTITIONS // TIDIED_SHARE)
    assert set(tidied) == set(range(PARTITIONS))


def test_a_turn_takes_one_view_of_each_shard_and_asks_its_store_once_for_what_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(PARTITIONS)
    send_to_each(world, "1s")
    world.settle()
    world.time.pass_ms(1_000)
    asked: list[int] = []
    next_fires_ms = Shard.next_fires_ms

    def noting(shard: Shard, until_ms: int) -> int | None:
        asked.append(shard.ingress.number)
        return next_fires_ms(shard, until_ms)

    monkeypatch.setattr(Shard, "next_fires_ms", noting)
    world.turn()
    assert sorted(asked) == list(range(PARTITIONS))
    assert len(world.delivered()) == PARTITIONS


def test_shards_with_nothing_to_do_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PARTITIONS)
    world.settle()
    world.turn(3)
    looked_at = _watched(monkeypatch)
    world.turn(5)
    assert looked_at == []
    world.send({"timer-topic": "orders", "timer-delay": "1h"}, partition=4)
    world.turn()
    assert looked_at == [4]


def test_a_shard_that_waits_for_a_commit_is_tidied_once_and_again_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(2)
    world.interval_ms = 10_000
    world.settle()
    world.time.pass_ms(10_000)
    world.turn(3)
    tidied = _watched(monkeypatch)
    world.send({"timer-topic": "orders", "timer-delay": "1h"}, partition=1)
    world.turn(5)
    assert (tidied, world.shards[1].position.next_offset) == ([1], 0)
    world.time.pass_ms(10_000)
    world.turn(3)
    assert (set(tidied), world.shards[1].position.next_offset) == ({0, 1}, 1)
    assert 2 <= tidied.count(1) <= 4


def test_each_is_looked_at_before_long_and_all_when_progress_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(PARTITIONS)
    world.settle()
    world.turn(3)
    looked_at = _watched(monkeypatch)
    for _ in range(REST_MS // 10):
        world.time.pass_ms(10)
        world.turn()
    assert set(looked_at) == set(range(PARTITIONS))
    world.time.pass_ms(IDLE_COMMIT_MS)
    world.turn(2)
    world.time.pass_ms(IDLE_COMMIT_MS - 60)
    world.turn()
    world.time.pass_ms(60)
    world.turn(2)
    watermarks_ms = {position.watermark.fires_ms for position in world.positions()}
    assert watermarks_ms == {world.time.wall_now_ms}


def test_of_many_idle_shards_some_are_committed_at_a_time() -> None:
    world = World(2 * IDLE_AT_ONCE + 1)
    world.settle()
    world.turn(3)
    world.time.pass_ms(IDLE_COMMIT_MS)
    committed = []
    for _ in range(3):
        world.turn()
        now_ms = world.time.wall_now_ms
        committed.append(sum(at.watermark.fires_ms == now_ms for at in world.positions()))
    assert committed == [IDLE_AT_ONCE, 2 * IDLE_AT_ONCE, 2 * IDLE_AT_ONCE + 1]


def test_what_falls_due_in_a_shard_that_rests_comes_in_its_millisecond() -> None:
    world = World(PARTITIONS)
    world.settle()
    world.send({"timer-topic": "orders", "timer-delay": "100"}, partition=3)
    world.turn(5)
    world.time.pass_ms(90)
    world.turn(2)
    assert world.pipeline._wait_ms() == 10
    world.time.pass_ms(9)
    world.turn(2)
    assert not world.delivered()
    world.time.pass_ms(1)
    world.turn(2)
    assert len(world.delivered()) == 1


def test_a_turn_ends_early_while_all_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.session.pipeline.TIDY_S", 60.0)
    world = World(4)
    world.settle()
    world.turn(3)
    before = step_counts(world.metrics.registry)["tidy"]
    for _ in range(10 * REST_MS // LONGEST_WAIT_MS):
        world.time.pass_ms(LONGEST_WAIT_MS)
        world.turn()
    assert step_counts(world.metrics.registry)["tidy"] - before == 10


def test_no_wait_is_cut_short_by_shards_that_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    world.settle()
    monkeypatch.setattr(Shard, "maintain", lambda *_: True)
    world.send({"timer-topic": "orders", "timer-delay": "1h"}, partition=0)
    world.turn(5)
    assert world.pipeline._wait_ms() == 1
    world.pipeline.hand_over([0])
    world.turn()
    assert world.pipeline._wait_ms() == LONGEST_WAIT_MS


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    looked_at: list[int] = []
    maintain = Shard.maintain

    def noted(shard: Shard, budget_entries: int, now_ms: int) -> bool:
        looked_at.append(shard.ingress.number)
        return maintain(shard, budget_entries, now_ms)

    monkeypatch.setattr(Shard, "maintain", noted)
    return looked_at


def test_no_turn_begins_for_shards_that_have_only_rested() -> None:
    """The next turn for another reason looks at them."""
    world = World(PARTITIONS)
    world.settle()
    world.turn(3)
    for _ in range(REST_MS):
        world.time.pass_ms(1)
        assert world.pipeline._wait_ms() == LONGEST_WAIT_MS
