"""Storing retry requests and committing offsets: in the right order, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from proxy.client.errors import (
    NotStored,
    ProducerFenced,
    RetryNotStored,
    TransactionFailed,
    TransactionInDoubt,
)
from proxy.client.place import Place
from proxy.client.receipt import Receipt
from proxy.client.request import Request
from proxy.client.retries.committing import settlement
from proxy.client.retries.committing.backlog import Backlog
from proxy.client.retries.committing.offset_metadata import Attempt
from proxy.client.retries.committing.settlement import (
    AtLeastOnce,
    ExactlyOnce,
    GroupMoved,
    MetadataTooLarge,
    OffsetsUnknown,
    committed,
    log_end,
)

MOVED = KafkaError.REBALANCE_IN_PROGRESS
AWAY = KafkaError._MSG_TIMED_OUT


class _Answer(NamedTuple):
    error: KafkaError | None


class World:
    """A consumer, a writer and its transactions that note what is asked of them, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.refuses: dict[bytes | None, int] = {}
        self.commit_fails = 0
        self.refused_metadata: KafkaError | None = None
        self.transaction_fails: TransactionFailed | None = None

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
        self.done += [_told("commit", place) for place in offsets]
        if self.commit_fails:
            raise KafkaException(KafkaError(self.commit_fails))
        return [_Answer(self.refused_metadata) for _ in offsets]

    def consumer_group_metadata(self) -> object:
        return "metadata"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.done.append("begin")
        yield
        if self.transaction_fails:
            self.done.append("abort")
            raise self.transaction_fails
        self.done.append("end")

    def add_offsets(self, offsets: Sequence[TopicPartition], metadata: object) -> None:
        assert metadata == "metadata"
        self.done += [_told("offset", place) for place in offsets]


def _told(what: str, place: TopicPartition) -> str:
    beside = f" {place.metadata}" if place.metadata else ""
    return f"{what} {place.partition}:{place.offset}{beside}"


@pytest.fixture
def world() -> World:
    return World()


def backlog(*failed: int) -> Backlog:
    """Offsets 0 to 4 of one partition, some of which failed."""
    made = Backlog()
    for offset in range(5):
        place = Place("orders", 0, offset)
        made.taken(place)
        if offset in failed:
            made.failed(place, Request(None, b"%d" % offset, []))
        else:
            made.handled(place)
    return made


def at_least_once(world: World) -> AtLeastOnce:
    return AtLeastOnce(cast(Any, world), cast(Any, world))


def exactly_once(world: World) -> ExactlyOnce:
    return ExactlyOnce(cast(Any, world), cast(Any, world), cast(Any, world))


def test_requests_are_stored_before_the_offsets_are_committed(world: World) -> None:
    left = backlog(1, 3)
    at_least_once(world).settle(left)
    assert world.done == ["write 1", "write 3", "commit 0:5"]
    assert not left


def test_offsets_stop_before_the_first_record_that_is_not_stored(world: World) -> None:
    world.refuses = {b"3": AWAY}
    with pytest.raises(RetryNotStored, match=r"1 failed records .* first orders/0/3"):
        at_least_once(world).settle(backlog(1, 3))
    assert world.done == ["write 1", "write 3", "commit 0:3 retry-1 - 3;done 1 1"]


def test_what_is_done_behind_one_that_is_not_stored_is_committed_beside_it(world: World) -> None:
    world.refuses = {b"0": AWAY}
    with pytest.raises(RetryNotStored):
        at_least_once(world).settle(backlog(0, 4))
    assert world.done == ["write 0", "write 4", "commit 0:0 retry-1 - 0;done 1 4"]


def test_behind_a_record_in_hand_a_request_is_stored_at_once_but_waits_for_a_transaction(
    world: World,
) -> None:
    """Which has to be once and for all, whatever becomes of the metadata."""
    left = Backlog()
    for offset in range(2):
        left.taken(Place("orders", 0, offset))
    left.failed(Place("orders", 0, 1), Request(None, b"1", []))
    exactly_once(world).settle(left)
    assert world.done == ["commit 0:0"]
    left.handled(Place("orders", 0, 0))
    exactly_once(world).settle(left)
    assert world.done[1:] == ["begin", "write 1", "offset 0:2", "end"]


def test_a_failing_commit_does_not_hide_what_was_not_stored(world: World) -> None:
    world.refuses, world.commit_fails = {b"3": AWAY}, MOVED
    with pytest.raises(RetryNotStored):
        at_least_once(world).settle(backlog(3))


def test_after_a_rebalance_the_offsets_are_tried_again_but_no_request_twice(world: World) -> None:
    left = backlog(1)
    world.commit_fails = MOVED
    with pytest.raises(GroupMoved):
        at_least_once(world).settle(left)
    world.commit_fails = 0
    at_least_once(world).settle(left)
    assert world.done == ["write 1", "commit 0:5", "commit 0:5"]


def test_a_commit_that_is_refused_for_good_is_raised(world: World) -> None:
    world.commit_fails = KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException):
        at_least_once(world).settle(backlog())


def test_requests_and_offsets_share_one_transaction(world: World) -> None:
    left = backlog(1, 3)
    exactly_once(world).settle(left)
    assert world.done == ["begin", "write 1", "write 3", "offset 0:5", "end"]
    assert not left


def test_without_a_request_no_transaction_is_needed(world: World) -> None:
    left = backlog()
    exactly_once(world).settle(left)
    assert world.done == ["commit 0:5"]
    assert not left


def test_after_a_rebalance_the_whole_transaction_is_made_again(world: World) -> None:
    left = backlog(1)
    world.transaction_fails = TransactionFailed(KafkaError(MOVED), "the offsets were not taken")
    with pytest.raises(GroupMoved):
        exactly_once(world).settle(left)
    world.transaction_fails = None
    exactly_once(world).settle(left)
    once = ["begin", "write 1", "offset 0:5"]
    assert world.done == [*once, "abort", *once, "end"]


def test_an_aborted_transaction_ends_the_consumer_with_nothing_committed(world: World) -> None:
    world.transaction_fails = TransactionFailed(KafkaError(AWAY), "not committed")
    with pytest.raises(RetryNotStored, match="2 failed records"):
        exactly_once(world).settle(backlog(1, 3))
    assert "end" not in world.done


def waiting_backlog(*failed: int) -> Backlog:
    """Offset 5 has failed twice and waits."""
    made = backlog(*failed)
    made.taken(Place("orders", 0, 5))
    made.waits(Place("orders", 0, 5), Attempt(2, 1_000))
    return made


def test_the_failures_of_what_waits_are_committed_beside_the_offset(world: World) -> None:
    left = waiting_backlog(1)
    at_least_once(world).settle(left)
    assert world.done == ["write 1", "commit 0:5 retry-1 - 5;failed 1 0:2:0"]
    assert not left


def test_in_a_transaction_too(world: World) -> None:
    exactly_once(world).settle(waiting_backlog(1))
    assert world.done == ["begin", "write 1", "offset 0:5 retry-1 - 5;failed 1 0:2:0", "end"]


def test_an_offset_that_is_refused_alone_is_told(world: World) -> None:
    world.refused_metadata = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        at_least_once(world).settle(backlog())


def test_metadata_that_is_too_large_may_be_shortened(world: World) -> None:
    world.refused_metadata = KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE)
    with pytest.raises(MetadataTooLarge):
        at_least_once(world).settle(backlog())
    world.transaction_fails = TransactionFailed(world.refused_metadata, "not taken")
    with pytest.raises(MetadataTooLarge):
        exactly_once(world).settle(backlog(1))


@pytest.mark.parametrize("kind", [TransactionInDoubt, ProducerFenced])
def test_doubt_and_fencing_are_told_as_they_are(
    world: World, kind: type[TransactionFailed]
) -> None:
    world.transaction_fails = kind(KafkaError(AWAY), "not committed")
    with pytest.raises(kind):
        exactly_once(world).settle(backlog(1))


class Ends:
    """A consumer that is asked where a partition ends, with its answers; the last one for good."""

    def __init__(self, *answers: tuple[int, int] | KafkaException | None) -> None:
        self._answers = list(answers)
        self.asked_s: list[float] = []

    def get_watermark_offsets(self, _where: object, within_s: float) -> tuple[int, int] | None:
        self.asked_s.append(within_s)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KafkaException):
            raise answer
        return answer


def end_of(ends: Ends, within_s: float) -> int | None:
    with patch.object(settlement, "ASK_AGAIN_AFTER_S", 0):
        return log_end(cast(Any, ends), TopicPartition("orders", 0), monotonic() + within_s)


def test_where_a_partition_ends_is_asked_until_a_broker_says_it() -> None:
    ends = Ends(KafkaException(KafkaError(AWAY)), None, (0, 7))
    assert end_of(ends, 60) == 7
    assert ends.asked_s == [5.0] * 3


def test_when_none_does_in_time_it_is_unknown_and_each_partition_is_asked_once_briefly() -> None:
    ends = Ends(KafkaException(KafkaError(AWAY)))
    assert end_of(ends, -1) is None
    assert ends.asked_s == [0.1]


class Offsets:
    """A consumer that is asked what is committed, with its answers; the last one for good."""

    def __init__(self, *answers: int | None) -> None:
        self._codes = list(answers)

    def committed(self, partitions: list[TopicPartition], _within_s: float) -> list[TopicPartition]:
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        if code is not None:
            raise KafkaException(KafkaError(code))
        return [TopicPartition(one.topic, one.partition, 5) for one in partitions]


def offsets_of(offsets: Offsets, stops_at: int = 10) -> list[int]:
    """Long after the time within which an error that stays is told."""
    left = iter([False] * stops_at)
    where = [TopicPartition("orders", 0)]
    with patch.object(settlement, "ASK_AGAIN_AFTER_S", 0):
        found = committed(cast(Any, offsets), where, -1, lambda: next(left, True))
    return [one.offset for one in found]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT])
def test_committed_offsets_are_waited_for_however_long_a_predecessors_transaction_lasts(
    code: int,
) -> None:
    assert offsets_of(Offsets(*[code] * 5, None)) == [5]


def test_an_error_that_stays_is_told_when_committed_offsets_are_asked_for() -> None:
    with pytest.raises(KafkaException):
        offsets_of(Offsets(KafkaError.GROUP_AUTHORIZATION_FAILED))


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_one_that_is_to_stop_waits_for_no_committed_offsets(code: int) -> None:
    with pytest.raises(OffsetsUnknown):
        offsets_of(Offsets(code), stops_at=0)
