"""Stored retry requests and committed offsets are in the right order after any failure."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafka_delay.commits import Backlog, GroupMoved, settle
from kafka_delay.errors import NotStored, RetryNotStored
from kafka_delay.kafka import Place
from kafka_delay.request import Receipt, Request

MOVED = KafkaError.REBALANCE_IN_PROGRESS
AWAY = KafkaError._MSG_TIMED_OUT


class _Answer(NamedTuple):
    error: KafkaError | None


class World:
    """Consumer and writer that note their calls in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.refuses: dict[bytes | None, int] = {}
        self.commit_fails = 0
        self.refused: KafkaError | None = None

    def write(self, request: Request) -> Future[Receipt]:
        self.done.append(f"write {(request.value or b'').decode()}")
        future: Future[Receipt] = Future()
        if code := self.refuses.get(request.value):
            future.set_exception(NotStored(KafkaError(code), "ingress"))
        else:
            future.set_result(Receipt("ingress", 0, 0, 0))
        return future

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> Sequence[_Answer]:
        assert not asynchronous
        self.done += [f"commit {place.partition}:{place.offset}" for place in offsets]
        assert not any(place.metadata for place in offsets)
        if self.commit_fails:
            raise KafkaException(KafkaError(self.commit_fails))
        return [_Answer(self.refused) for _ in offsets]


@pytest.fixture
def world() -> World:
    return World()


def backlog(*failed: int) -> Backlog:
    made = Backlog()
    for offset in range(5):
        place = Place("orders", 0, offset)
        made.taken(place)
        if offset in failed:
            made.failed(place, Request(None, b"%d" % offset, []))
        else:
            made.handled(place)
    return made


def settle_all(world: World, left: Backlog) -> None:
    settle(cast(Any, world), cast(Any, world), left, lambda: None)


def test_requests_are_stored_before_the_offsets_are_committed(world: World) -> None:
    left = backlog(1, 3)
    settle_all(world, left)
    assert world.done == ["write 1", "write 3", "commit 0:5"]
    assert not left


def test_offsets_stop_before_the_first_record_that_is_not_stored(world: World) -> None:
    world.refuses = {b"3": AWAY}
    with pytest.raises(RetryNotStored, match=r"1 failed records .* The first is orders/0/3"):
        settle_all(world, backlog(1, 3))
    assert world.done == ["write 1", "write 3", "commit 0:3"]


def test_a_failing_commit_does_not_hide_what_was_not_stored(world: World) -> None:
    world.refuses, world.commit_fails = {b"3": AWAY}, MOVED
    with pytest.raises(RetryNotStored):
        settle_all(world, backlog(3))


def test_after_a_rebalance_the_offsets_are_tried_again_but_no_request_twice(world: World) -> None:
    left = backlog(1)
    world.commit_fails = MOVED
    with pytest.raises(GroupMoved):
        settle_all(world, left)
    world.commit_fails = 0
    settle_all(world, left)
    assert world.done == ["write 1", "commit 0:5", "commit 0:5"]


def test_a_commit_that_is_refused_for_good_is_raised(world: World) -> None:
    world.commit_fails = KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException):
        settle_all(world, backlog())


def test_an_offset_that_is_refused_alone_is_told(world: World) -> None:
    world.refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        settle_all(world, backlog())
