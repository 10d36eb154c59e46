"""An undecodable ingress batch in a whole proxy on the stand-in Kafka."""

from __future__ import annotations

import json

import pytest

from tests.support.simulation.stand_in import Record
from tests.support.simulation.world import DEAD_LETTERS, World

BASE, END = 3, 6
CODE = b"record-unreadable"


def world_with_bad_batch(partitions: int = 1) -> World:
    world = World(partitions)
    for number in range(BASE):
        send(world, f"{number + 1}h")
    world.settle()
    world.kafka.unreadable[0] = [(BASE, END)]
    for _ in range(BASE, END):
        send(world, "0")
    send(world, "0")
    send(world, "2h")
    return world


def send(world: World, delay: str, partition: int = 0) -> None:
    world.send({"timer-topic": "orders", "timer-delay": delay}, partition=partition)


def skip(world: World) -> None:
    world.policies.skipped("id-1").add(0, range(BASE, END))


def pass_hours(world: World, hours: int) -> None:
    for _ in range(hours):
        world.time.pass_ms(3_600_000)
        world.settle()


def next_offset(world: World) -> int:
    return world.shards[0].position.next_offset


def letters(world: World) -> list[Record]:
    return world.kafka.read(DEAD_LETTERS)


def assert_all_ended_once(world: World, hours: int = 4) -> None:
    pass_hours(world, hours)
    ends = {origin: end for origin, end, _detail in world.ends()}
    assert len(ends) == len(world.ends()) == 8
    bad = {f"timer.ingress/0/{offset}" for offset in range(BASE, END)}
    assert {origin for origin, end in ends.items() if end == "dead-lettered"} == bad
    assert set(ends.values()) == {"delivered", "dead-lettered"}


def test_nothing_behind_it_is_read_and_what_waits_goes_on_being_delivered() -> None:
    world = world_with_bad_batch(2)
    send(world, "0", partition=1)
    pass_hours(world, 3)
    assert next_offset(world) == BASE
    assert sorted(world.origins()) == [
        *(f"timer.ingress/0/{offset}" for offset in range(BASE)),
        "timer.ingress/1/0",
    ]
    assert letters(world) == []


def test_the_place_is_known_once_it_has_failed_again_and_again() -> None:
    world = world_with_bad_batch(2)
    ingress = world.ingress
    assert ingress.stuck() == {}
    world.turn(4)
    (partition,) = ingress.stuck()
    stuck = ingress.stuck()[partition]
    assert (partition, stuck.offset) == (0, BASE)
    skip(world)
    world.settle()
    assert ingress.stuck() == {}


def test_each_skipped_record_becomes_a_dead_letter_without_content() -> None:
    world = world_with_bad_batch()
    world.settle()
    skip(world)
    world.settle()
    assert next_offset(world) == 8
    told = [(one.header("timer-origin"), one.key(), one.value()) for one in letters(world)]
    origins = [f"timer.ingress/0/{offset}".encode() for offset in range(BASE, END)]
    assert told == [(origin, None, None) for origin in origins]
    assert {one.header("timer-error") for one in letters(world)} == {CODE}
    names = {name for one in letters(world) for name, _ in one.headers() or []}
    assert names == {"timer-error", "timer-error-detail", "timer-origin"}
    assert_all_ended_once(world)


def test_a_replay_without_local_state_meets_the_batch_again_and_skips_it_again() -> None:
    world = world_with_bad_batch()
    world.settle()
    skip(world)
    world.settle()
    assert world.shards[0].position.floor < BASE
    world.crash()
    world.settle()
    assert next_offset(world) == 8
    assert len(letters(world)) == END - BASE
    assert_all_ended_once(world)


def test_a_replay_by_a_client_that_can_read_the_batch_skips_it_all_the_same() -> None:
    world = world_with_bad_batch()
    world.settle()
    skip(world)
    world.settle()
    world.crash()
    world.kafka.unreadable.clear()
    assert_all_ended_once(world)


@pytest.mark.parametrize("at", range(BASE, END + 1))
def test_reading_that_begins_within_the_batch_skips_the_rest_of_it(at: int) -> None:
    """Transactions hold few records, so that a crash comes within the batch."""
    world = world_with_bad_batch()
    world.settle()
    skip(world)
    world.batch_records = 1
    for _ in range(100):
        world.turn()
        if next_offset(world) >= at:
            break
    world.crash()
    assert_all_ended_once(world)


def test_a_record_behind_one_that_cannot_be_read_can_still_be_cancelled() -> None:
    world = World()
    world.send({"timer-topic": "orders", "timer-delay": "1h", "timer-id": "a"})
    world.settle()
    world.kafka.unreadable[0] = [(1, 2)]
    send(world, "0")
    world.send({"timer-cancel": "a"})
    world.settle()
    world.crash()
    pass_hours(world, 2)
    assert world.origins() == [], "a takeover waits for what lies behind the batch"
    world.policies.skipped("id-1").add(0, range(1, 2))
    world.settle()
    ends = [json.loads(one.value() or b"{}") for one in world.kafka.read("timer.outcomes")]
    assert sorted((one["origin"], one["outcome"]) for one in ends) == [
        ("timer.ingress/0/0", "cancelled"),
        ("timer.ingress/0/1", "dead-lettered"),
        ("timer.ingress/0/2", "applied"),
    ]


def test_reading_that_goes_back_while_a_batch_is_skipped_reads_what_lies_before_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A throttling broker makes the proxy give up its transaction and read again."""
    world = World(1)
    world.settle()
    ingress = world.pipeline._ingress
    world.kafka.unreadable[0] = [(BASE, END)]
    skip(world)
    for _ in range(END + 1):
        send(world, "0")

    def read_to(last: int) -> list[int]:
        offsets: list[int] = []
        while last not in offsets:
            offsets += [one.offset() for one in ingress.fetch(0, 2).records.get(0, [])]
        return offsets

    assert read_to(BASE + 1) == list(range(BASE + 2))
    ingress.rewind({0: 1})
    with monkeypatch.context() as nothing_yet:
        nothing_yet.setattr(ingress, "_wait_for_first", lambda *_: [])
        assert not ingress.fetch(0, 2).records
    assert read_to(END) == list(range(1, END + 1))


def test_a_recall_of_an_offset_without_a_record_before_such_a_batch_misses_and_stops_nothing() -> (
    None
):
    """A transaction ended there: reading from it meets the batch at once."""
    world = World()
    world.settle()
    asked: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": "0"}
    world.kafka.open_transaction(0, lambda: world.send(asked))
    world.kafka.end_transaction(0, is_committed=True)
    world.kafka.unreadable[0] = [(2, 3)]
    send(world, "0")
    world.send({"timer-recall": "timer.ingress/0/1"}, value=None)
    world.policies.skipped("id-1").add(0, range(2, 3))
    world.settle()
    ended = sorted((origin, end) for origin, end, _detail in world.ends())
    assert [end for _, end in ended] == ["delivered", "dead-lettered", "missed"]
