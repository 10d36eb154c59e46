"""Records through a whole proxy on the stand-in Kafka, with manual time."""

import json
from functools import partial

import pytest
from confluent_kafka import KafkaError

from proxy.errors import StartOverRefused
from proxy.protocol.policy import Policy
from storage.errors import StorageError, StoreDamaged
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.memory_store import MemoryStore
from tests.support.simulation.stand_in import kafka_error
from tests.support.simulation.world import DEAD_LETTERS, OUTCOMES, World


def after(delay: str) -> dict[str, str | bytes]:
    return {"timer-topic": "orders", "timer-delay": delay}


def test_a_record_fires_at_its_millisecond_and_not_before() -> None:
    world = World()
    world.send(after("2s"))
    world.settle()
    world.time.pass_ms(1_999)
    world.settle()
    assert world.delivered() == []
    world.time.pass_ms(1)
    world.turn()
    assert world.origins() == ["timer.ingress/0/0"]


def test_key_value_and_headers_arrive_byte_for_byte_with_stamps() -> None:
    world = World()
    headers: list[tuple[str, bytes | None]] = [
        ("trace", b"\xff\x00"),
        ("timer-topic", b"orders"),
        ("trace", b"second"),
        ("none", None),
        ("timer-delay", b"1s"),
    ]
    world.send(headers, b"\x00key", None)
    world.time.pass_ms(1_000)
    world.settle()
    (record,) = world.delivered()
    assert (record.key(), record.value()) == (b"\x00key", None)
    assert record.headers() == [
        ("trace", b"\xff\x00"),
        ("trace", b"second"),
        ("none", None),
        ("timer-origin", b"timer.ingress/0/0"),
        ("timer-due", str(START_MS + 1_000).encode()),
    ]


def test_pending_records_fire_in_order_of_due_then_offset() -> None:
    world = World()
    for delay in ("3s", "1s", "2s", "1s"):
        world.send(after(delay))
    world.settle()
    world.time.pass_ms(5_000)
    world.settle()
    assert world.origins() == [f"timer.ingress/0/{offset}" for offset in (1, 3, 2, 0)]


def test_more_due_than_a_transaction_holds_goes_out_in_several() -> None:
    world = World(limit=3)
    for _ in range(10):
        world.send(after("1s"))
    world.settle()
    world.time.pass_ms(1_000)
    world.turn()
    assert len(world.delivered()) == 3
    world.settle()
    assert world.origins() == [f"timer.ingress/0/{offset}" for offset in range(10)]


def test_newcomers_due_before_the_watermark_wait_for_room_unread() -> None:
    world = World(limit=3)
    world.send(after("0"))
    world.settle()
    for _ in range(10):
        world.send({"timer-topic": "orders", "timer-deliver-at": "1"})
    world.turn()
    assert [position.next_offset for position in world.positions()] == [4]
    world.settle()
    assert len(world.delivered()) == 11


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_commit_delivers_exactly_once(when: str) -> None:
    world = World()
    world.send(after("1s"))
    world.settle()
    world.kafka.commit_faults = [(when, kafka_error(KafkaError._FENCED, fatal=True))]
    world.time.pass_ms(1_000)
    world.settle()
    assert world.origins() == ["timer.ingress/0/0"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_of_unknown_outcome_is_looked_up_at_the_broker(when: str) -> None:
    world = World()
    world.send(after("1s"))
    world.settle()
    world.kafka.commit_faults = [(when, kafka_error(KafkaError._TIMED_OUT, retriable=True))]
    world.time.pass_ms(1_000)
    world.settle()
    assert world.origins() == ["timer.ingress/0/0"]


def test_an_aborted_transaction_is_made_again() -> None:
    world = World()
    world.send(after("1s"))
    world.settle()
    fault = kafka_error(KafkaError._TIMED_OUT, txn_requires_abort=True)
    world.kafka.commit_faults = [("before", fault)]
    world.time.pass_ms(1_000)
    world.turn()
    assert world.origins() == ["timer.ingress/0/0"]


def test_nothing_pending_fires_until_the_end_at_takeover_is_reached() -> None:
    world = World()
    world.send(after("1s"))
    world.settle()
    world.crash()
    for _ in range(10):
        world.send(after("1h"))
    world.time.pass_ms(2_000)
    world.batch_records = 4
    world.turn(2)
    assert world.delivered() == []
    world.settle()
    assert world.origins() == ["timer.ingress/0/0"]


def test_a_changed_policy_does_not_change_the_fate_of_older_records() -> None:
    world = World()
    world.send(after("1h"))
    world.settle()
    world.crash()
    world.policy = Policy(max_delay_ms=1_000)
    world.send(after("1h"))
    world.time.pass_ms(1_000)
    world.settle()
    assert [r.header("timer-origin") for r in world.kafka.read(DEAD_LETTERS)] == [
        b"timer.ingress/0/1"
    ]
    world.crash()
    world.time.pass_ms(3_600_000)
    world.settle()
    assert world.origins() == ["timer.ingress/0/0"]


def test_a_dead_letter_carries_all_of_the_record_and_an_outcome_names_it() -> None:
    world = World()
    headers: list[tuple[str, bytes | None]] = [("timer-delay", b"1s"), ("mine", b"\xff")]
    world.send(headers, b"k", b"v")
    world.settle()
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert (letter.key(), letter.value()) == (b"k", b"v")
    assert letter.headers_[:2] == headers
    assert letter.header("timer-error") == b"target-missing"
    (outcome,) = world.kafka.read(OUTCOMES)
    said = json.loads(outcome.value() or b"")
    assert outcome.key() == b"timer.ingress/0/0"
    assert (said["origin"], said["outcome"]) == ("timer.ingress/0/0", "dead-lettered")


def test_a_record_for_an_unknown_topic_dies_at_its_due_and_holds_up_nobody() -> None:
    world = World()
    world.policy = Policy(retry_max_attempts=1)
    lost: list[tuple[str, bytes | None]] = [
        ("timer-topic", b"nowhere"),
        ("timer-delay", b"1s"),
        ("timer-key", b"other"),
    ]
    world.send(lost, b"own")
    world.send(after("1s"))
    world.settle()
    assert world.kafka.read(DEAD_LETTERS) == []
    world.time.pass_ms(1_000)
    world.turn()
    assert world.origins() == ["timer.ingress/0/1"]
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert letter.header("timer-error") == b"target-unknown"
    assert (letter.key(), letter.headers_[:3]) == (b"own", lost)


def test_a_partition_that_the_target_lacks_is_a_dead_letter() -> None:
    world = World()
    world.send({**after("0"), "timer-partition": "4"})
    world.send({**after("0"), "timer-partition": "3"})
    world.settle()
    assert world.origins(DEAD_LETTERS) == ["timer.ingress/0/0"]
    assert [record.partition() for record in world.delivered()] == [3]


def test_a_partition_that_the_target_has_got_a_moment_ago_is_no_dead_letter() -> None:
    """Knowledge of a target is renewed once a minute, its producer's more rarely."""
    world = World()
    world.send({**after("0"), "timer-partition": "3"})
    world.settle()
    world.kafka.topics["orders"] = 8
    world.time.pass_ms(10_000)
    world.send({**after("0"), "timer-partition": "6"})
    world.send({**after("0"), "timer-partition": "8"})
    world.settle()
    assert [record.partition() for record in world.delivered()] == [3, 6]
    assert world.origins(DEAD_LETTERS) == ["timer.ingress/0/2"]


def test_a_record_too_large_for_its_target_dies_alone() -> None:
    world = World()
    world.kafka.max_bytes["orders"] = 10
    world.send(after("0"), value=b"x" * 11)
    world.send(after("0"), value=b"x" * 10)
    world.settle()
    assert world.origins() == ["timer.ingress/0/1"]
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert (letter.header("timer-error"), letter.value()) == (b"too-large", b"x" * 11)


@pytest.mark.parametrize("tells_rules", [False, True])
def test_records_that_the_proxys_own_client_does_not_send_die_alone(tells_rules: bool) -> None:
    """The client library refuses them at once, and the transaction stays open."""
    world = World()
    world.kafka.tells_rules, world.kafka.max_sent_bytes = tells_rules, 1_000
    for size_bytes in (2_000, 10, 3_000):
        world.send(after("0"), value=b"x" * size_bytes)
    world.settle()
    assert world.origins() == ["timer.ingress/0/1"]
    letters = world.kafka.read(DEAD_LETTERS)
    assert [letter.header("timer-origin") for letter in letters] == [
        b"timer.ingress/0/0",
        b"timer.ingress/0/2",
    ]
    assert {(letter.header("timer-error"), letter.value()) for letter in letters} == {
        (b"too-large", None)
    }
    assert b"message.max.bytes" in (letters[0].header("timer-error-detail") or b"")


def test_a_dead_letter_too_large_for_its_own_topic_goes_without_its_value() -> None:
    world = World()
    world.kafka.max_bytes[DEAD_LETTERS] = 10
    world.send({"mine": "kept"}, value=b"x" * 11)
    world.settle()
    (letter,) = world.kafka.read(DEAD_LETTERS)
    assert (letter.value(), letter.header("mine")) == (None, b"kept")


@pytest.mark.parametrize("tells_rules", [False, True])
def test_a_dead_letter_too_large_even_without_its_value_ends_with_origin_and_reason(
    tells_rules: bool,
) -> None:
    world = World()
    world.kafka.tells_rules, world.kafka.max_record_bytes[DEAD_LETTERS] = tells_rules, 400
    world.send({"mine": "x" * 500}, value=b"small")
    world.send({"mine": "kept"}, value=b"y" * 500)
    world.send({**after("0")})
    world.settle()
    bare, without_value = world.kafka.read(DEAD_LETTERS)
    assert (bare.key(), bare.value(), bare.header("mine")) == (None, None, None)
    assert bare.header("timer-origin") == b"timer.ingress/0/0"
    assert bare.header("timer-error") == b"target-missing"
    assert (without_value.value(), without_value.header("mine")) == (None, b"kept")
    details = [json.loads(one.value() or b"")["detail"] for one in world.kafka.read(OUTCOMES)]
    assert [detail.partition("; its dead letter has no ")[2] for detail in details] == [
        "key, value and headers: timer.dead-letters takes no records of this size",
        "value: timer.dead-letters takes no records of this size",
    ]
    assert world.origins() == ["timer.ingress/0/2"]


def test_a_dead_letter_keeps_its_value_once_its_topic_takes_it_after_all() -> None:
    large, larger, world = b"x" * 3_000, b"x" * 5_000, World()
    world.kafka.tells_rules = True
    for limit, values in ((2_000, [large]), (4_000, [large]), (4_000, [large, larger])):
        world.kafka.max_record_bytes[DEAD_LETTERS] = limit
        for value in values:
            world.send({"mine": "kept"}, value=value)
        world.settle()
    letters = world.kafka.read(DEAD_LETTERS)
    assert [letter.value() for letter in letters] == [None, large, large, None]


@pytest.mark.parametrize("error", [StoreDamaged("two files disagree"), StorageError("no room")])
def test_local_state_that_cannot_be_written_does_not_keep_a_shard_from_leaving(
    error: StorageError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: MemoryStore, next_offset: int) -> None:
        raise error

    world = World()
    world.send(after("1s"))
    world.settle()
    monkeypatch.setattr(MemoryStore, "flush", fail)
    world.stop()
    world.time.pass_ms(1_000)
    world.settle()
    assert world.origins() == ["timer.ingress/0/0"]


def test_a_lost_committed_offset_is_never_passed_over() -> None:
    world = World()
    world.send(after("1h"))
    world.settle()
    world.crash()
    world.kafka.committed.clear()
    with pytest.raises(StartOverRefused, match="accept_loss_below: {0: 0}"):
        world.turn()


def test_a_topic_created_anew_is_never_taken_for_the_old_one() -> None:
    world = World()
    world.send(after("1h"))
    world.settle()
    world.crash()
    world.topic_id = "id-2"
    with pytest.raises(StartOverRefused, match="deleted and created again"):
        world.turn()
    world.kafka.committed.clear()
    with pytest.raises(StartOverRefused, match="deleted and created again"):
        world.turn()


def test_records_deleted_by_retention_while_needed_are_named() -> None:
    world = World()
    world.send(after("1h"))
    world.send(after("0"))
    world.settle()
    world.crash()
    world.kafka.log_starts[0] = 2
    with pytest.raises(StartOverRefused, match="offsets 0 to 1 are still needed"):
        world.turn()
    world.accept_loss_below = {0: 2}
    world.settle()


@pytest.mark.parametrize("quiet_ms", [0, 60_000])
@pytest.mark.parametrize("end", ["aborted", "open, then aborted", "committed"])
def test_what_was_aborted_at_the_end_and_deleted_since_is_no_loss(end: str, quiet_ms: int) -> None:
    world = World()
    world.settle()
    world.time.pass_ms(quiet_ms)
    world.turn(2)
    write = partial(world.send, after("0"))
    world.kafka.open_transaction(0, write, write)
    if end == "open, then aborted":
        world.turn(3)
    world.kafka.end_transaction(0, is_committed=end == "committed")
    world.turn(5)
    world.stop()
    world.kafka.log_starts[0] = world.kafka.end(0)
    world.settle()
    assert [position.next_offset for position in world.positions()] == [3]
    assert len(world.delivered()) == (2 if end == "committed" else 0)


def test_what_has_ended_by_a_stop_is_not_needed_any_more() -> None:
    """Without local state everything from the floor on is needed."""
    world = World()
    world.send(after("0"))
    world.turn()
    assert len(world.delivered()) == 1
    world.stop()
    world.kafka.log_starts[0] = 1
    world.settle()
    assert [position.floor for position in world.positions()] == [1]


def test_metadata_written_by_another_tool_is_refused_with_what_to_do() -> None:
    world = World()
    world.send(after("1h"))
    world.settle()
    world.crash()
    world.kafka.committed[0] = (1, "")
    with pytest.raises(StartOverRefused, match="metadata that is not the proxy's"):
        world.turn()
    world.accept_loss_below = {0: 0}
    world.time.pass_ms(3_600_000)
    world.settle()
    assert world.origins() == ["timer.ingress/0/0"]


def test_partition_that_comes_back_while_its_records_wait_is_read_on() -> None:
    world = World(limit=1)
    world.settle()
    for _ in range(3):
        world.send({"timer-topic": "orders", "timer-delay": "0"})
    world.turn()
    assert world.shards[0].backlog
    world.kafka.rebalances.append(("on_lost", 0))
    world.settle()
    assert len(world.delivered()) == 3
