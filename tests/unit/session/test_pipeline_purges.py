"""Purges in a whole proxy on the stand-in Kafka (docs/exactly-once.md#purges)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from proxy.scheduling import purges as sweep
from proxy.session import pipeline
from proxy.session.pacing import IDLE_COMMIT_MS
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import OUTCOMES, World

PURGED_BY_2 = ("cancelled", f"purged by {INGRESS}/0/2")


def waits(world: World, target: str = "orders", delay: str = "1h", **more: str) -> None:
    asked: dict[str, str | bytes] = {f"timer-{name}": text for name, text in more.items()}
    world.send({"timer-topic": target, "timer-delay": delay, **asked})


def ends(world: World) -> dict[int, tuple[str, str]]:
    found = {int(origin.split("/")[2]): (what, said) for origin, what, said in world.ends()}
    assert len(found) == len(world.ends())
    return found


def two_targets() -> World:
    return World(targets=("orders", "bills"))


def test_a_purge_ends_what_waits_for_its_targets_and_names_itself() -> None:
    world = two_targets()
    waits(world)
    waits(world, "bills")
    world.purge("ord*")
    waits(world)
    world.settle()
    assert ends(world) == {0: PURGED_BY_2, 2: ("applied", "")}
    assert [shard.pending() for shard in world.shards.values()] == [2]
    world.time.pass_ms(IDLE_COMMIT_MS)
    world.settle()
    assert world.positions()[0].purge is None


def test_an_outcome_of_a_purge_has_the_records_own_id_and_due() -> None:
    world = World()
    waits(world, delay="5000", id="a")
    waits(world, delay="6000")
    world.purge("orders")
    world.settle()
    said = [json.loads(record.value() or b"") for record in world.kafka.read(OUTCOMES)]
    assert [(one["id"], one["due"]) for one in said if one["outcome"] == "cancelled"] == [
        ("a", START_MS + 5_000),
        (None, START_MS + 6_000),
    ]


def test_only_what_is_due_between_its_times_is_ended() -> None:
    world = World()
    for delay in ("999", "1000", "2000", "2001"):
        waits(world, delay=delay)
    world.purge("orders", START_MS + 1_000, START_MS + 2_000)
    world.settle()
    assert {n for n, (what, _) in ends(world).items() if what == "cancelled"} == {1, 2}
    world.time.pass_ms(3_000)
    world.settle()
    assert world.origins() == [f"{INGRESS}/0/0", f"{INGRESS}/0/3"]


def test_what_an_id_names_is_over_once_it_is_purged() -> None:
    world = World()
    waits(world, id="a")
    waits(world, id="b")
    world.purge("orders")
    world.send({"timer-cancel": "a"})
    waits(world, id="b")
    world.send({"timer-recall": f"{INGRESS}/0/0"})
    world.settle()
    assert ends(world) == {
        0: PURGED_BY_2,
        1: PURGED_BY_2,
        2: ("applied", ""),
        3: ("missed", "no record with this id is pending"),
        5: ("missed", "the record has already ended"),
    }


def test_a_recall_without_an_id_misses_what_was_purged() -> None:
    world = World()
    waits(world)
    world.purge("orders")
    world.send({"timer-recall": f"{INGRESS}/0/0"})
    world.settle()
    assert ends(world)[2] == ("missed", "the record has already ended")


def test_of_two_purges_the_first_that_fits_is_named() -> None:
    world = two_targets()
    waits(world, "bills")
    world.purge("orders")
    world.purge("b*")
    world.purge("*")
    waits(world)
    world.settle()
    assert ends(world)[0] == PURGED_BY_2
    assert [shard.pending() for shard in world.shards.values()] == [1]


def test_an_undecided_half_message_is_not_purged_and_a_committed_one_is() -> None:
    world = World()
    waits(world, id="a", transaction="prepare")
    waits(world, id="b", transaction="prepare")
    world.send({"timer-id": "a", "timer-transaction": "commit"})
    world.purge("orders")
    world.settle()
    assert ends(world)[0] == ("cancelled", f"purged by {INGRESS}/0/3")
    assert 1 not in ends(world)


def test_many_are_told_over_several_transactions_and_a_crash_between_tells_none_twice() -> None:
    world = World(limit=10)
    for _ in range(3 * sweep.LOOKED_AT):
        waits(world)
    world.purge("orders")
    while len(world.kafka.read(OUTCOMES)) < sweep.LOOKED_AT:
        world.turn()
    assert len(world.kafka.read(OUTCOMES)) < 3 * sweep.LOOKED_AT
    assert world.positions()[0].purge is not None
    world.crash()
    world.settle()
    assert len(ends(world)) == 3 * sweep.LOOKED_AT + 1
    assert [shard.pending() for shard in world.shards.values()] == [0]


def test_the_last_of_many_are_told_though_the_group_moves_on_meanwhile() -> None:
    world = World()
    for _ in range(sweep.LOOKED_AT + 1):
        waits(world)
    world.purge("orders")
    for _ in range(20):
        world.kafka.generation += bool(ends(world))
        world.turn()
        world.time.pass_ms(50)
    assert len(ends(world)) == sweep.LOOKED_AT + 2


def test_what_falls_due_before_the_sweep_has_found_it_is_not_delivered() -> None:
    world = World()
    for _ in range(2 * sweep.LOOKED_AT):
        waits(world, delay="50")
    waits(world, delay="10")
    world.purge("orders")
    world.pipeline.turn()
    world.time.pass_ms(100)
    world.settle()
    assert world.delivered() == []
    assert len(ends(world)) == 2 * sweep.LOOKED_AT + 2


def meet_in_mid_hop(world: World, *writes: Callable[[], object], **more: str) -> None:
    world.release.pause({"orders"})
    waits(world, delay="10", **more)
    world.settle()
    world.time.pass_ms(20)
    world.kafka.meanwhile.extend(writes)
    world.settle()


def test_a_record_in_mid_hop_ends_as_it_arrives_and_stays_ended_in_a_replay() -> None:
    world = World()
    meet_in_mid_hop(world, lambda: world.purge("orders"), id="a")
    assert ends(world) == {
        0: ("requeued", "orders is paused"),
        1: ("applied", ""),
        2: ("cancelled", f"purged by {INGRESS}/0/1"),
    }
    world.release.pause(())
    world.crash()
    world.time.pass_ms(100_000)
    world.settle()
    assert world.delivered() == []


def test_a_cancel_before_a_purge_says_that_it_has_ended_the_record_in_mid_hop() -> None:
    world = World()
    cancel = partial(world.send, {"timer-cancel": "a"})
    meet_in_mid_hop(world, cancel, lambda: world.purge("orders"), cancel, id="a")
    assert ends(world)[1] == ("applied", "")
    assert ends(world)[3][0] == "missed"
    assert ends(world)[4][0] == "cancelled"


def test_what_ended_in_mid_hop_stays_ended_in_a_replay_from_behind_the_purge() -> None:
    world = two_targets()
    meet_in_mid_hop(world, lambda: world.purge("orders"), lambda: waits(world, "bills"))
    assert ends(world)[3][0] == "cancelled"
    world.release.pause(())
    waits(world, "bills")
    world.settle()
    world.crash()
    world.time.pass_ms(100_000)
    world.settle()
    assert world.delivered() == []


def test_what_ended_in_mid_hop_stays_ended_over_a_takeover_before_an_open_transaction() -> None:
    """Another producer opened it between the purge and the successor, which is read late."""
    world = two_targets()
    meet_in_mid_hop(
        world,
        lambda: world.purge("orders"),
        lambda: waits(world, "bills"),
        lambda: world.kafka.stable_ends.update({0: 2}),
    )
    assert world.shards[0].next_offset == 2
    for _ in range(2):
        world.crash()
        world.settle()
        world.time.pass_ms(IDLE_COMMIT_MS)
        world.settle()
    world.kafka.stable_ends.clear()
    world.release.pause(())
    world.settle()
    world.time.pass_ms(100_000)
    world.settle()
    assert world.delivered() == []
    assert ends(world)[3][0] == "cancelled"


def test_after_a_takeover_nothing_goes_out_before_an_open_transaction_is_read() -> None:
    """A cancel behind it may be older than the takeover."""
    world = World()
    waits(world, delay="10", id="a")
    world.settle()
    world.send({"timer-cancel": "a"})
    world.kafka.stable_ends[0] = 1
    world.crash()
    world.time.pass_ms(1_000)
    world.settle()
    assert world.delivered() == []
    world.kafka.stable_ends.clear()
    world.settle()
    assert ends(world)[0][0] == "cancelled"


def test_a_purge_that_was_not_swept_before_a_crash_is_over_after_it() -> None:
    world = World()
    world.purge("orders")
    world.turn()
    assert world.positions()[0].purge is not None
    world.crash()
    world.settle()
    world.time.pass_ms(IDLE_COMMIT_MS)
    world.settle()
    assert world.positions()[0].purge is None


def test_what_an_id_names_is_still_over_once_its_purge_is_forgotten() -> None:
    """Its planned rewrite must not make it a record in mid-hop."""
    world = World()
    world.policy = replace(world.policy, roll_after_ms=60_000)
    waits(world, id="a")
    waits(world)
    world.purge("orders")
    world.settle()
    world.time.pass_ms(60_000)
    world.settle()
    waits(world, delay="0")
    world.turn()
    assert world.positions()[0].floor > 2
    world.send({"timer-cancel": "a"})
    world.settle()
    assert ends(world)[0] == PURGED_BY_2
    assert ends(world)[4] == ("missed", "no record with this id is pending")


def test_of_all_shards_together_a_transaction_tells_a_bounded_number_and_none_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "SWEPT_AT_ONCE", 10)
    world = World(partitions=3, limit=10_000)
    for partition in range(3):
        for _ in range(30):
            world.send({"timer-topic": "orders", "timer-delay": "1h"}, partition=partition)
        world.purge("orders", partition=partition)
    world.turn(2)
    told = [len(world.kafka.read(OUTCOMES))]
    while any(shard.pending() for shard in world.shards.values()):
        world.turn()
        told.append(len(world.kafka.read(OUTCOMES)))
    applied = 3
    assert max(after - before for before, after in pairwise(told)) <= 10 + applied
    assert len(told) <= 3 * 30 // 10 + 5


def test_a_purge_is_known_until_what_it_ended_in_mid_hop_has_arrived() -> None:
    world = World()
    world.policy, world.batch_records = replace(world.policy, roll_after_ms=1_000), 1
    waits(world, delay="1500ms", id="a")
    world.settle()
    world.time.pass_ms(1_000)
    world.kafka.meanwhile += [
        partial(world.purge, "orders"),
        partial(waits, world, delay="1500ms", id="a"),
    ]
    world.turn()
    assert ends(world)[0] == ("rolled", "")
    while world.shards[0].next_offset < 3:
        world.turn()
    world.pause_ingest(True)
    for _ in range(2):
        world.time.pass_ms(IDLE_COMMIT_MS)
        world.settle()
    assert ends(world)[2] == ("rolled", "")
    world.pause_ingest(False)
    world.settle()
    assert ends(world)[3] == ("cancelled", f"purged by {INGRESS}/0/1")
    world.time.pass_ms(1_000)
    world.settle()
    assert world.origins() == [f"{INGRESS}/0/4"]
