"""Many records refused one by one do not delay others that are due with them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from proxy.dispatch.refusals import TRIES
from tests.support.simulation.stand_in import COMPRESSIBLE, INGRESS, kafka_error
from tests.support.simulation.world import DEAD_LETTERS, World

BAD = 60
GOOD = 5
LIMIT_BYTES = 1_500
NOT_IN_BATCHES = 5
"""Aborts of a transaction before records are tried alone."""


def a_world(*, tells_rules: bool = True) -> World:
    """Return a world with a target of small records. Only the broker knows compressed sizes."""
    world = World(targets=("small", "orders"))
    world.compresses, world.kafka.tells_rules = True, tells_rules
    world.kafka.max_record_bytes["small"] = LIMIT_BYTES
    return world


def send(world: World, target: str, records: int, value: bytes, key: bytes | None = b"k") -> None:
    for _ in range(records):
        world.send({"timer-topic": target}, key=key, value=value)


def ends(world: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, end, _ in world.ends():
        found[end] = found.get(end, 0) + 1
    return found


@pytest.mark.parametrize("tells_rules", [True, False])
def test_others_are_delivered_after_a_few_aborts_and_each_refused_record_ends(
    tells_rules: bool,
) -> None:
    world = a_world(tells_rules=tells_rules)
    send(world, "small", BAD, bytes(2_000))
    send(world, "small", GOOD, COMPRESSIBLE + bytes(2_000))
    send(world, "orders", GOOD, b"v")
    world.settle()
    assert len(world.delivered("orders")) == GOOD
    assert world.kafka.aborts <= TRIES + NOT_IN_BATCHES
    for _ in range(BAD + GOOD):
        world.time.pass_ms(250)
        world.settle()
    assert len(world.delivered("small")) == GOOD, "what fits once compressed is no dead letter"
    letters = world.kafka.read(DEAD_LETTERS)
    assert {letter.header("timer-error") for letter in letters} == {b"too-large"}
    assert len(letters) == BAD
    assert ends(world)["requeued"] <= 2 * (BAD + GOOD), "most are put off once"


def test_refusals_are_known_in_the_next_session() -> None:
    world = a_world()
    send(world, "small", 2, bytes(2_000))
    world.kafka.commit_faults = [("before", kafka_error(KafkaError._TIMED_OUT))]
    world.turn()
    learnt, world.kafka.aborts = world.kafka.aborts, 0
    assert learnt >= 2
    world.settle()
    assert world.kafka.aborts <= 1
    assert len(world.kafka.read(DEAD_LETTERS)) == 2
    assert not world.refusals.are_known, "what is committed is forgotten"


def test_dead_letters_that_their_topic_refuses_hold_up_no_others() -> None:
    world = a_world()
    world.kafka.max_record_bytes[DEAD_LETTERS] = LIMIT_BYTES
    send(world, "a.b/c", BAD, bytes(2_000))
    send(world, "orders", GOOD, b"v")
    world.settle()
    assert len(world.delivered("orders")) == GOOD
    assert world.kafka.aborts <= TRIES + NOT_IN_BATCHES
    assert [letter.value() for letter in world.kafka.read(DEAD_LETTERS)] == [None] * BAD


@pytest.mark.parametrize("compresses", [False, True])
def test_rewritten_records_that_the_ingress_refuses_hold_up_no_others(compresses: bool) -> None:
    world = a_world()
    world.compresses = compresses
    world.kafka.max_record_bytes[INGRESS] = LIMIT_BYTES
    world.release.pause(["small"])
    send(world, "small", BAD, bytes(2_000))
    send(world, "orders", GOOD, b"v")
    world.settle()
    assert len(world.delivered("orders")) == GOOD
    assert world.kafka.aborts <= TRIES + NOT_IN_BATCHES
    assert len(world.kafka.read(DEAD_LETTERS)) == BAD


def test_invalid_records_are_tried_a_few_at_a_time() -> None:
    """The stand-in refuses one record after the other, as a broker without culprits."""
    world = a_world()
    world.kafka.keyless_refused.add("small")
    send(world, "small", BAD, b"v", key=None)
    send(world, "orders", GOOD, b"v")
    world.settle()
    assert len(world.delivered("orders")) == GOOD
    assert world.kafka.aborts <= TRIES + NOT_IN_BATCHES
    for _ in range(BAD):
        world.time.pass_ms(250)
        world.settle()
    assert len(world.kafka.read(DEAD_LETTERS)) == BAD
