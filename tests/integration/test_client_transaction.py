"""Half messages from the Python client on a real broker. The test asks as the proxy would."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_delay import (
    ClientError,
    ConfigRefused,
    HalfMessage,
    NotStored,
    State,
    TransactionalDelayProducer,
)
from tests.support.records import Headers, Incoming, Outgoing, new_topic, read_to_end, write
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.core]

WITHIN_S = 180


class Listener:
    """Listener that knows the results of transactions, and notes the questions."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.asked: list[HalfMessage] = []

    def check(self, half: HalfMessage) -> State:
        self.asked.append(half)
        return self.states[half.id]


class World:
    """An ingress, a check topic, and a producer between them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.ingress = new_topic(bootstrap, "ingress", 2)
        self.checks = f"checks-{uuid.uuid4().hex[:8]}"
        self.listener = Listener()
        self.producer = self.open()

    def open(self, **options: Any) -> TransactionalDelayProducer:
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 0}
        return TransactionalDelayProducer(
            settings, self.listener, self.checks, ingress=self.ingress, **options
        )

    def requests(self, count: int) -> list[Incoming]:
        return read_to_end(self.bootstrap, self.ingress, count)

    def ask(self, ident: str, number: int = 1) -> None:
        headers: Headers = [
            ("trace", b"7"),
            ("timer-transaction", b"check"),
            ("timer-id", ident.encode()),
            ("timer-check", b"%d" % number),
        ]
        write(self.bootstrap, self.checks, [Outgoing(b"k", b"v", headers)])


@pytest.fixture
def world(kafka: str) -> Iterator[World]:
    made = World(kafka)
    yield made
    made.producer.close()


def send(world: World, state: Any, **options: Any) -> Any:
    local = state if callable(state) else lambda _: state
    return world.producer.send_in_transaction(
        "orders", "v", "k", local_transaction=local, **options
    )


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
def test_a_half_message_is_followed_by_what_the_local_transaction_returned(
    world: World, state: State
) -> None:
    result = send(world, state, headers={"trace": "7"}, delay="30s", immunity="1m")
    assert result.decision is not None
    decided = result.decision.result(WITHIN_S)
    half, decision = world.requests(2)
    assert half.key == decision.key == result.id.encode()
    assert half.partition == decision.partition == decided.partition
    assert uuid.UUID(result.id).version == 4
    assert half.headers == [
        ("timer-transaction", b"prepare"),
        ("timer-check-topic", world.checks.encode()),
        ("timer-check-immunity", b"1m"),
        ("timer-topic", b"orders"),
        ("timer-delay", b"30s"),
        ("timer-id", half.key),
        ("timer-key", b"k"),
        ("trace", b"7"),
    ]
    word = state.value.encode()
    assert decision.headers == [("timer-transaction", word), ("timer-id", half.key)]
    assert (half.value, decision.value) == (b"v", None)


def test_the_half_message_is_stored_before_the_local_transaction_runs(world: World) -> None:
    seen: list[tuple[HalfMessage, int]] = []

    def local(half: HalfMessage) -> State:
        seen.append((half, len(world.requests(1))))
        return State.COMMIT

    send(world, local, id="order-7")
    assert seen == [(HalfMessage("order-7", "orders", b"k", b"v", []), 1)]


def test_a_local_transaction_does_not_run_when_the_half_message_is_not_stored(
    kafka: str,
) -> None:
    narrow = new_topic(kafka, "narrow", 1, {"max.message.bytes": "1000"})
    ran: list[HalfMessage] = []

    def local(half: HalfMessage) -> State:
        ran.append(half)
        return State.COMMIT

    checks = f"checks-{uuid.uuid4().hex[:8]}"
    with (
        TransactionalDelayProducer(
            {"bootstrap.servers": kafka}, Listener(), checks, ingress=narrow
        ) as producer,
        pytest.raises(NotStored),
    ):
        producer.send_in_transaction("orders", b"x" * 5_000, local_transaction=local)
    assert ran == []


@pytest.mark.parametrize("state", [State.UNKNOWN, None])
def test_not_knowing_writes_no_decision(world: World, state: State | None) -> None:
    result = send(world, state)
    assert (result.state, result.decision) == (State.UNKNOWN, None)
    assert len(world.requests(1)) == 1


def test_an_exception_reaches_the_caller_and_leaves_the_decision_to_the_check_back(
    world: World,
) -> None:
    def local(_: HalfMessage) -> State:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        send(world, local, id="order-8")
    assert "order-8 is left to the check-back" in raised.value.__notes__[0]
    assert len(world.requests(1)) == 1


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
def test_a_check_back_is_answered_in_the_background(world: World, state: State) -> None:
    world.listener.states["lost"] = state
    world.ask("lost", 2)
    (answer,) = world.requests(1)
    assert (answer.key, answer.value) == (b"lost", None)
    assert answer.headers == [("timer-transaction", state.value.encode()), ("timer-id", b"lost")]
    assert world.listener.asked == [
        HalfMessage("lost", None, b"k", b"v", [("trace", b"7")], 2),
    ]


def test_a_listener_that_does_not_know_or_fails_is_asked_again_later(world: World) -> None:
    world.listener.states |= {"unsure": State.UNKNOWN, "sure": State.COMMIT}
    for ident in ("unsure", "failing", "sure"):
        world.ask(ident)
    (answer,) = world.requests(1)
    assert answer.key == b"sure"
    assert [half.id for half in world.listener.asked] == ["unsure", "failing", "sure"]


def test_what_is_no_check_back_is_left_alone(world: World) -> None:
    world.listener.states["real"] = State.ROLLBACK
    write(world.bootstrap, world.checks, [Outgoing(b"k", b"noise")])
    world.ask("real")
    assert [answer.key for answer in world.requests(1)] == [b"real"]


def test_another_process_of_the_group_answers_once_this_one_has_gone(world: World) -> None:
    world.listener.states["orphan"] = State.COMMIT
    with world.open():
        world.producer.close()
        world.ask("orphan")
        assert [answer.key for answer in world.requests(1)] == [b"orphan"]


def test_check_backs_may_be_pumped_by_the_caller(kafka: str) -> None:
    world = World(kafka)
    world.producer.close()
    world.listener.states["pumped"] = State.COMMIT
    with world.open(in_background=False, group=f"g{uuid.uuid4().hex[:8]}") as producer:
        world.ask("pumped")
        wait_for(lambda: producer.serve_checks(0.5), WITHIN_S, "the check-back")
        assert producer.serve_checks() == 0
    assert [answer.key for answer in world.requests(1)] == [b"pumped"]


def test_pumping_beside_the_background_thread_is_refused(world: World) -> None:
    with pytest.raises(ClientError, match="in the background"):
        world.producer.serve_checks()


def test_a_transactional_id_is_refused_as_another_kind_of_transaction(kafka: str) -> None:
    settings = {"bootstrap.servers": kafka, "transactional.id": "x"}
    with pytest.raises(ConfigRefused, match="half messages are not"):
        TransactionalDelayProducer(settings, Listener(), "checks")


@pytest.mark.parametrize("topic", ["", "no topic", "a/b"])
def test_a_check_topic_that_is_no_topic_is_refused(kafka: str, topic: str) -> None:
    with pytest.raises(ConfigRefused, match="check topic"):
        TransactionalDelayProducer({"bootstrap.servers": kafka}, Listener(), topic)
