"""Limits on what may wait in a whole proxy on the stand-in Kafka."""

import json
from typing import Any

import pytest

from proxy.config.settings import AdmissionSettings
from tests.support.simulation.world import DEAD_LETTERS, OUTCOMES, World

HOUR = "1h"


def a_world(records: int | None = None, **per_target: int) -> World:
    return limited(AdmissionSettings(records=records, per_target=per_target))


def limited(admission: AdmissionSettings) -> World:
    world = World(targets=("orders", "bills"))
    world.admission = admission
    world.settle()
    return world


def send(
    world: World, target: str = "orders", delay: str = HOUR, size_bytes: int = 5, **more: str
) -> None:
    asked = {f"timer-{name}": text for name, text in more.items()}
    headers: dict[str, str | bytes] = {"timer-topic": target, "timer-delay": delay, **asked}
    world.send(headers, value=bytes(size_bytes))


def outcomes(world: World) -> list[str]:
    said = [json.loads(record.value() or b"") for record in world.kafka.read(OUTCOMES)]
    return [one["outcome"] for one in said]


def shed(world: World) -> list[str | None]:
    return [str(record.header("timer-origin")) for record in world.kafka.read(DEAD_LETTERS)]


def test_what_finds_no_room_is_a_dead_letter_at_once_that_says_why() -> None:
    world = a_world(records=2)
    for _ in range(3):
        send(world)
    world.settle()
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert letter.header("timer-error") == b"too-many"
    assert letter.header("timer-origin") == b"timer.ingress/0/2"
    assert b"(admission.records)" in (letter.header("timer-error-detail") or b"")
    assert outcomes(world) == ["dead-lettered"]


def test_what_is_due_at_once_needs_no_room() -> None:
    world = a_world(records=1)
    send(world)
    send(world, delay="0")
    world.time.pass_ms(10)
    world.settle()
    assert world.origins() == ["timer.ingress/0/1"]
    assert shed(world) == []


def test_what_takes_the_place_of_another_needs_no_room() -> None:
    world = a_world(records=1)
    send(world, id="a")
    send(world, id="a")
    send(world, id="b")
    world.settle()
    assert sorted(outcomes(world)) == ["dead-lettered", "replaced"]


def test_what_was_cancelled_and_is_due_makes_room_once() -> None:
    world = a_world(records=4)
    world.batch_records = 1
    for ident in "abcd":
        send(world, delay="1s", id=ident)
        world.send({"timer-cancel": ident})
    world.settle()
    world.crash()
    world.time.pass_ms(60_000)
    for _ in range(5):
        send(world)
    world.settle()
    assert shed(world) == [str(b"timer.ingress/0/12")]
    assert world.shards[0].pending() == 4


def test_whoever_cancels_or_commits_what_was_shed_is_told_that_nothing_waits() -> None:
    world = a_world(records=1)
    send(world)
    send(world, id="a")
    send(world, id="b", transaction="prepare")
    world.send({"timer-cancel": "a"})
    world.send({"timer-id": "b", "timer-transaction": "commit"})
    world.settle()
    assert sorted(outcomes(world)) == ["dead-lettered", "dead-lettered", "missed", "missed"]


def test_half_messages_take_room_while_they_are_undecided() -> None:
    world = a_world(records=1)
    send(world, id="a", transaction="prepare")
    send(world)
    world.settle()
    assert shed(world) == ["b'timer.ingress/0/1'"]


def test_a_target_that_is_full_keeps_out_no_other() -> None:
    world = a_world(orders=1)
    for target in ("orders", "orders", "bills"):
        send(world, target)
    world.settle()
    assert shed(world) == ["b'timer.ingress/0/1'"]


@pytest.mark.parametrize(
    "limits",
    [
        {"records": 2},
        {"per_target": {"orders": 2}},
        {"size_bytes": 100},
        {"bytes_per_target": {"orders": 100}},
    ],
)
def test_what_fell_due_while_the_proxy_was_away_takes_no_room(limits: dict[str, Any]) -> None:
    world = limited(AdmissionSettings(**limits))
    world.crash()
    world.batch_records = 1
    for _ in range(5):
        send(world, delay="1s")
    world.time.pass_ms(60_000)
    send(world)
    world.settle()
    assert len(world.delivered()) == 5
    assert shed(world) == []


def test_there_is_room_again_once_records_are_delivered_or_cancelled() -> None:
    world = a_world(records=2)
    send(world, delay="1s")
    send(world, id="a")
    world.settle()
    world.send({"timer-cancel": "a"})
    world.time.pass_ms(2_000)
    world.settle()
    for _ in range(3):
        send(world)
    world.settle()
    assert len(shed(world)) == 1


def test_bytes_that_find_no_room_are_a_dead_letter_and_a_smaller_record_still_fits() -> None:
    world = limited(AdmissionSettings(size_bytes=1_000))
    for size_bytes in (800, 200, 50):
        send(world, size_bytes=size_bytes)
    world.settle()
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert letter.header("timer-error") == b"too-many"
    assert letter.header("timer-origin") == b"timer.ingress/0/1"
    assert b"(admission.bytes)" in (letter.header("timer-error-detail") or b"")


def test_bytes_of_a_target_that_is_full_keep_out_no_other() -> None:
    world = limited(AdmissionSettings(bytes_per_target={"orders": 500}))
    for target in ("orders", "orders", "bills"):
        send(world, target, size_bytes=400)
    world.settle()
    assert shed(world) == ["b'timer.ingress/0/1'"]
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert b"(admission.bytes_per_target)" in (letter.header("timer-error-detail") or b"")


def test_there_is_room_for_bytes_again_once_records_are_delivered() -> None:
    world = limited(AdmissionSettings(size_bytes=1_000))
    send(world, delay="1s", size_bytes=900)
    world.settle()
    world.time.pass_ms(2_000)
    world.settle()
    send(world, size_bytes=900)
    world.settle()
    assert shed(world) == []


def test_what_was_cancelled_takes_bytes_until_its_time_has_come() -> None:
    world = limited(AdmissionSettings(size_bytes=1_000))
    send(world, delay="1s", size_bytes=900, id="a")
    world.send({"timer-cancel": "a"})
    world.settle()
    send(world, size_bytes=900)
    world.settle()
    world.time.pass_ms(2_000)
    world.settle()
    send(world, size_bytes=900)
    world.settle()
    assert shed(world) == ["b'timer.ingress/0/2'"]
