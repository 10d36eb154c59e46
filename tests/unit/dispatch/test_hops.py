"""Records rewritten to the ingress: contents of the successor."""

from __future__ import annotations

import tempfile
from pathlib import Path

from proxy.dispatch.hops import outcome_of, successor
from proxy.protocol.body import Delivery, Headers, IngressPartition
from proxy.protocol.outcomes import Outcome
from proxy.protocol.policy import Policy
from proxy.scheduling.batch import Hop
from tests.support.oracle.asked import Rules
from tests.support.oracle.conservation import violations
from tests.support.simulation.local_store import store_in
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.world import World

INGRESS = IngressPartition("timer.ingress", 2)
POLICY = Policy(roll_after_ms=1_000, levels_ms=(100, 200, 400), retry_first_level=1)
RULES = Rules(levels_ms=(100, 200, 400), first_level=1)


def a_delivery(*headers: tuple[str, bytes | None], entry_offset: int = 7) -> Delivery:
    own: Headers = [("trace", b"1"), ("timer-topic", b"orders"), *headers]
    return Delivery(5_000, 7, "orders", -1, b"key", b"value", own, entry_offset, 1_000, 5_000)


def test_successor_is_the_same_record_with_an_absolute_time() -> None:
    delivery = a_delivery(("timer-delay", b"1h"), ("timer-id", b"a"), ("x", None))
    note = successor(INGRESS, Hop(delivery, "rolled"))
    assert (note.topic, note.partition, note.key, note.value) == (
        "timer.ingress",
        2,
        b"key",
        b"value",
    )
    assert note.headers == [
        ("trace", b"1"),
        ("timer-topic", b"orders"),
        ("timer-id", b"a"),
        ("x", None),
        ("timer-deliver-at", b"5000"),
        ("timer-hop-from", b"7"),
        ("timer-hop-first", b"7"),
        ("timer-first-origin", b"timer.ingress/2/7"),
    ]


def test_successor_of_a_committed_half_message_is_an_ordinary_record() -> None:
    asked = (
        ("timer-transaction", b"prepare"),
        ("timer-check-topic", b"checks"),
        ("timer-check-immunity", b"1s"),
    )
    note = successor(INGRESS, Hop(a_delivery(*asked, entry_offset=9), "rolled"))
    said = dict(note.headers)
    assert not {name for name, _ in asked} & set(said)
    assert said["timer-hop-from"] == b"9"
    assert said["timer-hop-first"] == b"7"
    assert said["timer-first-origin"] == b"timer.ingress/2/7"


def test_second_successor_keeps_where_it_began_and_what_has_failed() -> None:
    """A record rolled while pending for a retry keeps both."""
    hopped = (
        ("timer-hop-from", b"3"),
        ("timer-hop-not-before", b"9000"),
        ("timer-hop-attempt", b"4"),
        ("timer-hop-first", b"1"),
        ("timer-first-origin", b"timer.ingress/2/1"),
    )
    said = dict(successor(INGRESS, Hop(a_delivery(*hopped), "rolled")).headers)
    assert said["timer-hop-from"] == b"7"
    assert said["timer-hop-not-before"] == b"9000"
    assert said["timer-hop-attempt"] == b"4"
    assert said["timer-hop-first"] == b"1"
    assert said["timer-first-origin"] == b"timer.ingress/2/1"


def test_failed_attempt_counts_and_says_when_the_next_one_is() -> None:
    hop = Hop(a_delivery(("timer-hop-attempt", b"4")), "requeued", "target-unknown: …", 9_000, 5)
    said = dict(successor(INGRESS, hop).headers)
    assert (said["timer-hop-attempt"], said["timer-hop-not-before"]) == (b"5", b"9000")


def test_successor_gets_the_key_that_its_record_had_in_the_ingress() -> None:
    asked = (("timer-key", b"key"), ("timer-ingress-key", b"own"))
    note = successor(INGRESS, Hop(a_delivery(*asked), "rolled"))
    assert note.key == b"own"
    assert ("timer-key", b"key") in note.headers
    assert "timer-ingress-key" not in dict(note.headers)


def test_outcome_of_a_hop_tells_what_was_asked_for() -> None:
    hop = Hop(a_delivery(("timer-id", b"a")), "requeued", "why", 9_000, 1)
    assert outcome_of(hop) == Outcome(7, "requeued", 5_000, b"a", "why")


def a_world(folder: Path | None = None) -> World:
    world = World(open_store=None if folder is None else store_in("wheel", folder))
    world.policy = POLICY
    return world


def roll_on(world: World, elapsed_ms: int) -> None:
    for _ in range(elapsed_ms // 100):
        world.time.pass_ms(100)
        world.settle()


def test_record_rolls_until_it_is_due_and_arrives_with_its_own_due() -> None:
    world = a_world()
    world.send({"timer-topic": "orders", "timer-delay": "3500", "timer-partition": "2"})
    roll_on(world, 3_400)
    assert world.delivered() == []
    roll_on(world, 100)
    (record,) = world.delivered()
    assert int(record.header("timer-due") or b"") == START_MS + 3_500
    assert record.header("timer-first-origin") == b"timer.ingress/0/0"
    assert record.partition() == 2
    assert violations(world.evidence(), RULES) == []


def test_first_copies_are_needed_no_more_once_they_are_rolled() -> None:
    """The floor moves on, so that retention may delete them."""
    with tempfile.TemporaryDirectory() as folder:
        for world in (a_world(), a_world(Path(folder))):
            for number in range(20):
                world.send({"timer-topic": "orders", "timer-delay": "1h", "timer-id": str(number)})
            roll_on(world, 11_000)
            end = world.kafka.end(0)
            assert end > 200
            assert world.shards[0].position.floor >= end - 40
            world.crash()


def test_rolled_records_outlive_their_first_copies_without_local_state() -> None:
    world = a_world()
    world.send({"timer-topic": "orders", "timer-delay": "5s"})
    world.send({"timer-topic": "orders", "timer-delay": "1h", "timer-id": "a"})
    roll_on(world, 3_300)
    world.kafka.log_starts[0] = world.shards[0].position.floor
    assert world.kafka.log_starts[0] > 1
    world.crash()
    world.send({"timer-cancel": "a"})
    roll_on(world, 2_000)
    assert [record.header("timer-first-origin") for record in world.delivered()] == [
        b"timer.ingress/0/0"
    ]
    assert violations(world.evidence(), RULES) == []


def test_topic_made_meanwhile_gets_its_record_by_a_retry() -> None:
    world = a_world()
    world.send({"timer-topic": "later", "timer-key": "asked"}, key=b"own")
    world.settle()
    world.kafka.topics["later"] = 1
    roll_on(world, 6_000)
    (record,) = world.delivered("later")
    assert (record.key(), record.value()) == (b"asked", b"value")
    assert int(record.header("timer-due") or b"") == START_MS
    assert violations(world.evidence(), RULES) == []
