"""The retry consumer on a real broker. A relay replaces the proxy and delivers at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_delay import ClientError, DeadLetter, Received, RetryLater, RetryNotStored
from tests.conftest import StartBroker
from tests.integration.retry_world import (
    CLASSIC,
    IMPATIENT,
    WITHIN_S,
    Handle,
    Relay,
    World,
    at_work,
    fails,
)
from tests.support.group_offsets import commit
from tests.support.installation.other_kafka import FROM_KAFKA_4
from tests.support.quiet_clients import QUIET
from tests.support.raw_produce import produce_raw
from tests.support.records import Outgoing, new_topic, read_to_end, write
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

COOPERATIVE = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}
KIP_848 = {"group.protocol": "consumer"}


@pytest.fixture
def world(kafka: str) -> World:
    return World(kafka)


def test_a_failed_record_asks_for_its_retry_and_those_behind_it_are_not_held_up(
    world: World,
) -> None:
    seen: list[bytes | None] = []

    def handler(record: Received) -> None:
        seen.append(record.value)
        fails(b"2")(record)

    own: list[tuple[str, bytes | None]] = [("trace", b"7"), ("none", None)]
    world.write(*(Outgoing(b"k", b"%d" % n, own, partition=0) for n in range(5)))
    with at_work(world, handler):
        (request,) = world.requests(1)
        wait_for(lambda: world.committed(world.orders) == 5, WITHIN_S, "the offsets")
    assert seen == [b"0", b"1", b"2", b"3", b"4"]
    assert (request.key, request.value) == (b"k", b"2")
    assert request.headers == [
        ("timer-retry-group", world.group.encode()),
        ("timer-attempt", b"0"),
        *own,
        ("retry-original-topic", world.orders.encode()),
        ("retry-original-partition", b"0"),
        ("retry-original-offset", b"2"),
        ("retry-attempt", b"1"),
        ("retry-exception", b"ValueError: no b'2'"),
    ]


def test_retries_count_up_to_the_dead_letters_and_keep_where_they_came_from(world: World) -> None:
    attempts: list[int] = []

    def handler(record: Received) -> None:
        attempts.append(record.attempt)
        assert record.topic == world.orders
        raise RuntimeError("never")

    world.write(Outgoing(b"k", b"v", partition=1))
    with at_work(world, handler), Relay(world):
        wait_for(lambda: len(attempts) >= 17, WITHIN_S, "all attempts")
        (letter,) = read_to_end(world.bootstrap, world.dlq, 1)
    assert attempts == list(range(17))
    assert letter.header("retry-original-topic") == world.orders.encode()
    assert letter.header("retry-original-partition") == b"1"
    assert letter.header("retry-attempt") == b"17"


def test_a_record_that_succeeds_on_its_retry_is_done_with(world: World) -> None:
    attempts: list[int] = []

    def handler(record: Received) -> None:
        attempts.append(record.attempt)
        if record.attempt < 2:
            raise OSError("not yet")

    world.write(Outgoing(b"k", b"v"))
    with at_work(world, handler), Relay(world):
        wait_for(lambda: len(attempts) >= 3, WITHIN_S, "three attempts")
    assert attempts == [0, 1, 2]
    assert len(world.requests(2)) == 2


def test_a_handler_may_send_a_record_to_the_dead_letters_at_once(world: World) -> None:
    seen = threading.Event()

    def handler(record: Received) -> None:
        seen.set()
        raise DeadLetter("no such customer")

    world.write(Outgoing(b"k", b"v"))
    with at_work(world, handler), Relay(world):
        assert seen.wait(WITHIN_S)
        (letter,) = read_to_end(world.bootstrap, world.dlq, 1)
    assert letter.header("retry-exception") == b"no such customer"


def test_an_exception_means_what_the_consumer_was_told_of_its_class(world: World) -> None:
    raised: dict[bytes | None, Exception] = {
        b"give up": ValueError("no"),
        b"ignore": KeyError("k"),
        b"retry": UnicodeError("odd"),
    }

    def handler(record: Received) -> None:
        raise raised[record.value]

    world.write(*(Outgoing(b"k", value, partition=0) for value in raised))
    rules = {"give_up": [ValueError], "ignore": [KeyError], "retry": [UnicodeError]}
    with at_work(world, handler, **rules):
        requests = world.requests(2)
        wait_for(lambda: world.committed(world.orders) == 3, WITHIN_S, "the offsets")
    attempts = {request.value: request.header("timer-attempt") for request in requests}
    assert attempts == {b"give up": b"16", b"retry": b"0"}


def test_a_record_whose_headers_cannot_be_read_goes_to_the_dead_letters(world: World) -> None:
    produce_raw(world.bootstrap, world.orders, b"v", [(b"\xff\xfe", b"x")])
    with at_work(world, lambda _: None):
        (request,) = world.requests(1)
    assert request.value == b"v"
    assert request.header("timer-attempt") == b"16"


def test_an_ingress_that_takes_nothing_stops_the_consumer_and_loses_nothing(world: World) -> None:
    world.ingress = new_topic(world.bootstrap, "narrow", 1, {"max.message.bytes": "1000"})
    values = [b"a", b"b", b"x" * 5_000, b"c"]
    world.write(*(Outgoing(b"k", value, partition=0) for value in values))
    consumer = world.consumer(fails(b"x" * 5_000))
    with pytest.raises(RetryNotStored, match=f"{world.orders}/0/2"):
        consumer.run()
    assert world.committed(world.orders) == 2
    seen: list[bytes | None] = []
    with at_work(world, lambda record: seen.append(record.value)):
        wait_for(lambda: world.committed(world.orders) == 4, WITHIN_S, "the rest")
    assert seen == [b"x" * 5_000, b"c"]


def test_offsets_with_the_metadata_of_older_versions_are_read_without_it(world: World) -> None:
    """Older versions wrote the completed records beside the offset."""
    world.write(*(Outgoing(b"k", b"%d" % n, partition=0) for n in range(4)))
    config = {"bootstrap.servers": world.bootstrap, "group.id": world.group, **QUIET}
    older = TopicPartition(world.orders, 0, 1, metadata="retry-1 - 1;failed 1 0:2:0;done 1 1")
    consumer = Consumer(config)
    commit(consumer, [older])
    consumer.close()
    seen: list[tuple[bytes | None, int]] = []
    with at_work(world, lambda record: seen.append((record.value, record.attempt))):
        wait_for(lambda: len(seen) == 3, WITHIN_S, "the records")
    assert seen == [(b"1", 0), (b"2", 0), (b"3", 0)]
    assert world.committed(world.orders) == 4


WORK_S = 0.001
"""Duration of a handler. It is busy, with uncommitted records, whenever the group rebalances."""
AT_ONCE = 100


class Shared:
    """Records handled by several consumers. Every third record fails at first."""

    def __init__(self, world: World) -> None:
        self.handled: dict[str, list[int]] = {"first": [], "second": []}
        self.written = 0
        self._world = world

    def handler(self, name: str) -> Handle:
        def handle(record: Received) -> None:
            number = int(record.value or b"")
            time.sleep(WORK_S)
            self.handled[name].append(number)
            if number % 3 == 0 and not record.attempt:
                raise ValueError("every third")

        return handle

    def write_more(self) -> None:
        numbers = range(self.written, self.written + AT_ONCE)
        self._world.write(*(Outgoing(b"%d" % n, b"%d" % n) for n in numbers))
        self.written += AT_ONCE

    def has_begun(self) -> bool:
        self.write_more()
        return bool(self.handled["first"])

    def both_have(self, records: int) -> bool:
        self.write_more()
        return all(len(numbers) >= records for numbers in self.handled.values())

    def all_done(self) -> bool:
        return set().union(*self.handled.values()) >= set(range(self.written))


@pytest.mark.parametrize(
    "config",
    [CLASSIC, COOPERATIVE, pytest.param(KIP_848, marks=FROM_KAFKA_4)],
    ids=["classic", "cooperative", "kip-848"],
)
def test_while_consumers_come_and_go_every_failure_is_retried(
    world: World, config: Mapping[str, Any]
) -> None:
    shared = Shared(world)
    with at_work(world, shared.handler("first"), config=config):
        wait_for(shared.has_begun, WITHIN_S, "the first to begin")
        with at_work(world, shared.handler("second"), config=config):
            wait_for(lambda: shared.both_have(50), WITHIN_S, "both to work")
        wait_for(shared.all_done, WITHIN_S, "everything")
    failing = {b"%d" % number for number in range(0, shared.written, 3)}
    assert {request.value for request in world.requests(len(failing))} == failing


def test_stop_commits_what_is_handled_and_leaves_the_rest(world: World) -> None:
    world.write(*(Outgoing(b"k", b"%d" % n, partition=0) for n in range(1_000)))
    seen: list[bytes | None] = []

    def handler(record: Received) -> None:
        seen.append(record.value)
        if len(seen) == 7:
            consumer.stop()

    consumer = world.consumer(handler)
    consumer.run()
    assert len(seen) == 7
    assert world.committed(world.orders) == 7


def test_an_interrupt_in_the_handler_ends_the_consumer_before_that_record(world: World) -> None:
    world.write(*(Outgoing(b"k", b"%d" % n, partition=0) for n in range(5)))

    def handler(record: Received) -> None:
        if record.value == b"3":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.consumer(handler).run()
    assert world.committed(world.orders) == 3


def test_a_broker_that_goes_away_before_the_request_is_stored_loses_nothing(
    own_broker: StartBroker,
) -> None:
    broker = own_broker()
    world = World(broker.bootstrap_servers)
    world.write(Outgoing(b"k", b"v", partition=0))

    def handler(record: Received) -> None:
        broker.kill()
        raise ConnectionError("nothing answers any more")

    quick = {**QUIET, "message.timeout.ms": 2_000}
    with pytest.raises(RetryNotStored):
        world.consumer(handler, IMPATIENT, producer_config=quick).run()
    broker.start()
    again: list[int] = []
    with at_work(world, lambda record: again.append(record.attempt)):
        wait_for(lambda: again, WITHIN_S, "the record to come again")
    assert again == [0]
    assert world.requests(0) == []


STOPS_WITHIN_S = 60


@pytest.mark.parametrize("is_orderly", [False, True], ids=["handled", "waits"])
def test_one_that_stops_while_no_broker_answers_ends_soon_and_says_what_comes_again(
    own_broker: StartBroker, is_orderly: bool
) -> None:
    broker = own_broker()
    world = World(broker.bootstrap_servers)
    world.write(Outgoing(b"a", b"first", partition=0), Outgoing(b"b", b"second", partition=0))

    killed_s: list[float] = []

    def handler(record: Received) -> None:
        if record.value == b"first" and is_orderly:
            raise RetryLater("1h")
        if record.value == b"second":
            broker.kill()
            killed_s.append(time.monotonic())
            consumer.stop()

    consumer = world.consumer(handler, orderly=is_orderly)
    told = nullcontext() if is_orderly else pytest.raises(ClientError, match="will come again")
    with told:
        consumer.run()
    assert time.monotonic() < killed_s[0] + STOPS_WITHIN_S


KEY = "a key that only the group knows"


def test_with_a_key_a_forged_retry_goes_to_the_dead_letters_and_a_real_one_to_the_handler(
    world: World,
) -> None:
    """The forger may write to the ingress only."""
    calls: list[tuple[str, bytes | None, int]] = []

    def handler(record: Received) -> None:
        calls.append((record.topic, record.value, record.attempt))
        if not record.attempt:
            raise ValueError("not yet")

    forged = [
        ("timer-retry-group", world.group.encode()),
        ("timer-attempt", b"0"),
        ("retry-original-topic", world.orders.encode()),
        ("retry-original-partition", b"0"),
        ("retry-original-offset", b"0"),
        ("retry-attempt", b"3"),
    ]
    world.write(Outgoing(b"k", b"real"))
    with at_work(world, handler, signing_key=KEY), Relay(world):
        wait_for(lambda: len(calls) == 2, WITHIN_S, "the real one")
        write(world.bootstrap, world.ingress, [Outgoing(b"k", b"forged", forged)])
        (letter,) = read_to_end(world.bootstrap, world.dlq, 1)
    assert calls == [(world.orders, b"real", 0), (world.orders, b"real", 1)]
    assert letter.value == b"forged"
    assert b"the retry is not signed" in (letter.header("retry-exception") or b"")
    assert letter.header("retry-original-topic") == world.retry.encode()


def test_a_retry_of_a_topic_that_the_consumer_does_not_read_is_not_believed(world: World) -> None:
    seen: list[bytes | None] = []
    forged = [
        ("timer-retry-group", world.group.encode()),
        ("timer-attempt", b"0"),
        ("retry-original-topic", b"payments"),
        ("retry-original-partition", b"0"),
        ("retry-original-offset", b"0"),
    ]
    world.write(Outgoing(b"k", b"first"))
    with at_work(world, lambda record: seen.append(record.value)), Relay(world):
        wait_for(lambda: seen, WITHIN_S, "the consumer to begin")
        write(world.bootstrap, world.ingress, [Outgoing(b"k", b"forged", forged)])
        (letter,) = read_to_end(world.bootstrap, world.dlq, 1)
    assert (seen, letter.value) == ([b"first"], b"forged")
    assert b"'payments', which this consumer does not read" in (
        letter.header("retry-exception") or b""
    )
