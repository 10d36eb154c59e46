"""Undecided half messages: asked about in time, decided once, read back if necessary."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proxy.protocol.body import IngressPartition, packer
from proxy.protocol.parsed import Prepare
from proxy.protocol.policy import Policy
from proxy.protocol.position import LAST_OFFSET, Position, SetBack, Watermark
from proxy.scheduling.half_messages import (
    HalfMessageEvent,
    HalfMessages,
    check_back,
    expiry_request,
)
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import StandInProducer
from tests.support.simulation.world import DEAD_LETTERS, OUTCOMES, World

INGRESS_PARTITION = IngressPartition("timer.ingress", 3)
BEFORE_ALL = Watermark(0, 0)
LATER = Watermark(1_000, 0)
CONTENT = packer()((-1, b"key", b"value", [("trace", b"1"), ("timer-topic", b"orders")]))
POLICY = Policy(immunity_ms=500, check_interval_ms=1_000, max_checks=3)


def a_half(ident: bytes = b"t", first_ms: int = 100, check_topic: str | None = "checks") -> Prepare:
    return Prepare(ident, (50, 7, "orders", CONTENT), 50, False, check_topic, first_ms, 10, 3, 0)


def some_undecided(
    *halves: tuple[int, Prepare], watermark: Watermark = BEFORE_ALL
) -> tuple[HalfMessages, list[list[int]]]:
    asked: list[list[int]] = []

    def read_back(offsets: object) -> dict[int, Prepare]:
        wanted = list(offsets)  # type: ignore[call-overload]
        asked.append(wanted)
        return {offset: half for offset, half in halves if offset in wanted}

    return HalfMessages(read_back, at(watermark)), asked


def at(watermark: Watermark) -> Position:
    due_ms, cursor = watermark
    start = Position.start(0, "digest", "topic-id")
    return replace(start, watermark_ms=due_ms, cursor=cursor)


def pass_to(halves: HalfMessages, watermark: Watermark) -> None:
    halves.position = at(watermark)
    halves.advance()


def happened(found: list[HalfMessageEvent]) -> list[tuple[int, int]]:
    return [(event.fires_ms, event.check) for event in found]


def test_checks_come_in_their_interval_and_then_the_end() -> None:
    halves, _asked = some_undecided()
    halves.add(7, a_half())
    assert happened(halves.due(LATER, 10).events) == [(100, 1), (110, 2), (120, 3), (130, 4)]
    assert [event.is_last for event in halves.due(LATER, 10).events] == [
        False,
        False,
        False,
        True,
    ]


def test_planned_events_happen_again_until_the_watermark_has_passed_them() -> None:
    halves, _asked = some_undecided()
    halves.add(7, a_half())
    assert happened(halves.due(Watermark(110, 7), 10).events) == [(100, 1), (110, 2)]
    assert happened(halves.due(Watermark(110, 7), 10).events) == [(100, 1), (110, 2)]
    pass_to(halves, Watermark(110, 7))
    assert halves.next_ms() == 120
    assert happened(halves.due(Watermark(125, 7), 10).events) == [(120, 3)]


def test_events_of_several_come_in_order_and_no_more_than_there_is_room_for() -> None:
    halves, _asked = some_undecided()
    halves.add(7, a_half(b"a", 100))
    halves.add(8, a_half(b"b", 105))
    found = halves.due(LATER, 3).events
    assert [(event.fires_ms, event.ident) for event in found] == [
        (100, b"a"),
        (105, b"b"),
        (110, b"a"),
    ]


def test_decided_half_message_is_asked_about_no_more() -> None:
    halves, _asked = some_undecided()
    halves.add(7, a_half(b"a"))
    halves.add(8, a_half(b"b"))
    halves.discard(7)
    halves.discard(7)
    assert (len(halves), halves.first_offset) == (1, 8)
    assert {event.ident for event in halves.due(LATER, 10).events} == {b"b"}


def test_half_messages_that_are_decided_at_once_leave_nothing_in_memory() -> None:
    halves, _ = some_undecided()
    for offset in range(7, 10):
        halves.add(offset, a_half())
        assert halves.next_ms() == 100
        halves.discard(offset)
        assert halves.next_ms() is None


def test_half_message_without_a_check_topic_only_expires() -> None:
    halves, _asked = some_undecided()
    halves.add(7, a_half(check_topic=None))
    assert happened(halves.due(LATER, 10).events) == [(130, 4)]


def test_what_was_to_happen_before_it_could_be_read_is_told_when_it_is() -> None:
    halves, _asked = some_undecided(watermark=Watermark(115, 0))
    late = a_half()
    assert happened(halves.passed(7, late)) == [(100, 1), (110, 2)]
    halves.add(7, late)
    assert happened(halves.due(LATER, 10).events) == [(120, 3), (130, 4)]


def test_what_had_happened_before_the_watermark_was_set_back_does_not_happen_again() -> None:
    back = SetBack(8, Watermark(115, LAST_OFFSET))
    halves = HalfMessages(lambda _: {}, replace(at(BEFORE_ALL), set_back=back))
    assert happened(halves.passed(7, a_half())) == [(100, 1), (110, 2)]
    halves.add(7, a_half(b"old"))
    halves.add(8, a_half(b"new"))
    found = halves.due(LATER, 10).events
    checks = {i: [e.check for e in found if e.ident == i] for i in (b"old", b"new")}
    assert checks == {b"old": [3, 4], b"new": [1, 2, 3, 4]}


def test_half_messages_known_from_before_are_read_when_they_are_needed() -> None:
    halves, asked = some_undecided((7, a_half(b"a")), (9, a_half(b"b")))
    halves.load([(9, b"b"), (7, b"a")])
    assert (len(halves), halves.first_offset, asked) == (2, 7, [])
    assert halves.next_ms() is not None, "they are to be read, though nothing else is due"
    assert {event.ident for event in halves.due(Watermark(100, 99), 10).events} == {b"a", b"b"}
    assert asked == [[7, 9]]


def test_half_message_that_the_ingress_has_lost_ends_at_once() -> None:
    halves, _asked = some_undecided(watermark=Watermark(50, 0))
    halves.load([(7, b"a")])
    (event,) = halves.due(LATER, 10).events
    assert (event.is_last, event.prepare, event.ident) == (True, None, b"a")


def test_bodies_that_memory_has_no_room_for_are_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.scheduling.half_messages.HELD_BYTES", len(CONTENT))
    halves, asked = some_undecided((7, a_half(b"a")), (8, a_half(b"b")))
    halves.add(7, a_half(b"a"))
    halves.add(8, a_half(b"b"))
    found = halves.due(Watermark(100, 99), 10).events
    assert [event.prepare and event.prepare.entry[3] for event in found] == [CONTENT, CONTENT]
    assert asked == [[8]]
    halves.discard(7)
    halves.add(7, a_half(b"a"))
    assert halves.prepare(7) == a_half(b"a")
    assert asked == [[8]]


def test_large_check_backs_come_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.scheduling.half_messages.CHECK_BACK_BYTES", len(CONTENT) + 1)
    halves, _asked = some_undecided()
    for offset in (7, 8, 9):
        halves.add(offset, a_half(b"%d" % offset))
    first = halves.due(Watermark(100, 99), 10)
    assert [(event.fires_ms, event.offset) for event in first.events] == [(100, 7), (100, 8)]
    assert not first.is_all
    pass_to(halves, Watermark(100, 8))
    second = halves.due(Watermark(100, 99), 10)
    assert [event.offset for event in second.events] == [9]
    assert second.is_all


def test_expiry_needs_no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.scheduling.half_messages.HELD_BYTES", 0)
    halves, asked = some_undecided((7, a_half()))
    halves.add(7, a_half())
    pass_to(halves, Watermark(125, 0))
    (event,) = halves.due(LATER, 10).events
    assert (event.is_last, asked) == (True, [])


@pytest.mark.parametrize("is_read_late", [False, True])
def test_transactions_have_a_bound_on_the_bytes_of_their_check_backs(
    monkeypatch: pytest.MonkeyPatch, is_read_late: bool
) -> None:
    value, sizes_bytes = b"x" * 1_000, list[int]()
    for room in ("half_messages", "admission"):
        monkeypatch.setattr(f"proxy.scheduling.{room}.CHECK_BACK_BYTES", 3_000)
    commit = StandInProducer.commit_transaction

    def measured(producer: StandInProducer, *arguments: float) -> None:
        sizes_bytes.append(sum(len(one[3] or b"") for one in producer._sent if one[0] == "checks"))
        commit(producer, *arguments)

    monkeypatch.setattr(StandInProducer, "commit_transaction", measured)
    world = a_world()
    if is_read_late:
        world.settle()
        world.time.pass_ms(60_000)
        world.settle()
        world.kafka.now_ms = lambda: START_MS
    for number in range(20):
        asked = {"topic": "orders", "id": f"t{number}", "check-topic": "checks"}
        given = {**asked, "transaction": "prepare"}.items()
        world.send([(f"timer-{n}", v.encode()) for n, v in given], value=value)
    world.settle()
    world.time.pass_ms(60_000)
    world.settle()
    assert len(world.kafka.read("checks")) == 20 * POLICY.max_checks
    assert max(sizes_bytes) <= 3_000 + POLICY.max_checks * len(value)
    assert set(how_all_ended(world).values()) == {"expired", "applied"}


def test_check_back_is_the_message_as_it_would_arrive_with_three_headers() -> None:
    note = check_back(INGRESS_PARTITION, HalfMessageEvent(110, 7, b"t", 2, a_half()))
    assert note is not None
    assert (note.topic, note.key, note.value) == ("checks", b"key", b"value")
    assert note.headers == [
        ("trace", b"1"),
        ("timer-transaction", b"check"),
        ("timer-id", b"t"),
        ("timer-check", b"2"),
    ]


def test_expiry_goes_through_the_log_of_its_own_partition() -> None:
    note = expiry_request(INGRESS_PARTITION, HalfMessageEvent(130, 7, b"t", 4, a_half()))
    assert (note.topic, note.partition, note.key, note.value) == ("timer.ingress", 3, b"t", None)
    assert dict(note.headers) == {
        "timer-transaction": b"expire",
        "timer-id": b"t",
        "timer-hop-from": b"7",
    }


def a_world() -> World:
    world = World(targets=("orders", "checks"))
    world.policy = POLICY
    return world


def prepare(world: World, **asked: str) -> None:
    given = {"topic": "orders", "id": "t", "check-topic": "checks", **asked}
    world.send({f"timer-{n}": v for n, v in {**given, "transaction": "prepare"}.items()})


def decide(world: World, what: str, ident: str = "t") -> None:
    world.send({"timer-id": ident, "timer-transaction": what})


def how_all_ended(world: World) -> dict[int, str]:
    return {int(origin.rpartition("/")[2]): what for origin, what, _ in world.ends()}


def test_commit_delivers_at_the_due_or_at_once_when_that_has_passed() -> None:
    world = a_world()
    prepare(world, delay="2s")
    decide(world, "commit")
    prepare(world, id="u", delay="1s")
    world.settle()
    world.time.pass_ms(1_999)
    world.settle()
    assert world.delivered() == []
    decide(world, "commit", "u")
    world.time.pass_ms(1)
    world.settle()
    dues = sorted(int(r.header("timer-due") or b"") - START_MS for r in world.delivered())
    assert dues == [1_000, 2_000]


def test_expired_half_message_is_a_dead_letter_with_all_its_headers() -> None:
    world = a_world()
    prepare(world)
    for _ in range(5):
        world.time.pass_ms(1_000)
        world.settle()
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert letter.header("timer-error") == b"transaction-expired"
    assert letter.header("timer-transaction") == b"prepare"
    assert [json.loads(o.value() or b"")["outcome"] for o in world.kafka.read(OUTCOMES)] == [
        "expired",
        "applied",
    ]
    checks = [record.header("timer-check") for record in world.kafka.read("checks")]
    assert checks == [b"1", b"2", b"3"]


def test_commit_that_lies_before_the_expiry_in_the_log_wins() -> None:
    """The commit precedes the proxy's request to end the message."""
    world = a_world()
    prepare(world)
    world.settle()
    world.time.pass_ms(3_500)
    world.kafka.meanwhile.append(lambda: decide(world, "commit"))
    world.settle()
    assert how_all_ended(world) == {0: "delivered", 1: "applied", 2: "missed"}


def test_decision_finds_a_half_message_from_before_a_crash_without_local_state() -> None:
    for what, end in (("commit", "delivered"), ("rollback", "rolled-back")):
        world = a_world()
        prepare(world)
        world.settle()
        world.crash()
        decide(world, what)
        world.settle()
        assert how_all_ended(world) == {0: end, 1: "applied"}


def test_check_topic_that_is_missing_costs_the_question_and_nothing_else() -> None:
    world = a_world()
    prepare(world, **{"check-topic": "nobody-made-it"})
    world.send({"timer-topic": "orders", "timer-delay": "600"})
    for _ in range(5):
        world.time.pass_ms(1_000)
        world.settle()
    assert how_all_ended(world)[0] == "expired"
    assert world.origins() == ["timer.ingress/0/1"]


def test_message_too_large_for_its_check_topic_expires_and_is_delivered_all_the_same() -> None:
    """This also holds if check-backs fail in the transaction that delivers it."""
    world = a_world()
    world.kafka.max_bytes["checks"] = 1
    prepare(world)
    prepare(world, id="u")
    world.settle()
    world.crash()
    world.time.pass_ms(10_000)
    world.settle()
    assert how_all_ended(world) == {0: "expired", 1: "expired", 2: "applied", 3: "applied"}
    prepare(world)
    world.time.pass_ms(10_000)
    decide(world, "commit")
    world.settle()
    assert how_all_ended(world)[4] == "delivered"
