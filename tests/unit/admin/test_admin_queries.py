"""Queries reach the worker's loop and its answers return, over threads and pipes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from typing import Any

import pytest

from proxy.admin import queries
from proxy.admin.queries import (
    MOST_WAITING,
    CountedShard,
    FindId,
    MailboxFull,
    NoAnswer,
    PendingByTime,
    Query,
    QueryMailbox,
    Workers,
    receive_queries,
)
from proxy.logs import Level
from proxy.scheduling.shard import Shard
from storage.errors import StoreDamaged
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.world import World

LIMIT_S = 180.0
QUERY = PendingByTime((START_MS + 5_000,), (0, 7))
COUNTED = [CountedShard(0, [1, 0])]


@contextmanager
def a_loop(mailbox: QueryMailbox, world: World) -> Iterator[None]:
    is_over = threading.Event()

    def turn() -> None:
        while not is_over.wait(0.001):
            mailbox.answer_one(lambda: world.shards)

    thread = threading.Thread(target=turn)
    thread.start()
    yield
    is_over.set()
    thread.join(LIMIT_S)


def a_world(ident: str = "a") -> World:
    world = World(partitions=2)
    for partition, delay in enumerate(["1s", "9s"]):
        ask = {"timer-topic": "orders", "timer-delay": delay, "timer-id": f"{ident}{partition}"}
        world.send(dict(ask), partition=partition)
    world.settle()
    return world


def test_a_query_is_answered_by_the_loop() -> None:
    mailbox = QueryMailbox()
    with a_loop(mailbox, a_world()):
        workers = Workers(mailbox)
        assert workers.ask(QUERY) == COUNTED
        (one,) = workers.ask(FindId(b"a1"))
        assert str(one).startswith("Found(origin='timer.ingress/1/0'")


@pytest.mark.parametrize(("scan_s", "counted"), [(-1.0, [1]), (LIMIT_S, [1, 0])])
def test_so_many_shards_are_counted_as_there_is_time_for_and_one_at_least(
    monkeypatch: pytest.MonkeyPatch, scan_s: float, counted: list[int]
) -> None:
    monkeypatch.setattr(queries, "SCAN_S", scan_s)
    found = QUERY._replace(partitions=(7, 1, 0)).answer(a_world().shards)
    assert found == [CountedShard(p, [1 - p, p]) for p in counted]


def test_a_loop_that_does_not_turn_gives_no_answer_and_forgets_the_query() -> None:
    mailbox = QueryMailbox()
    with pytest.raises(NoAnswer):
        mailbox.ask(QUERY, 0.01)
    mailbox.answer_one(lambda: pytest.fail("nobody waits for this any more"))


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.001, 0.04), (0.5, 0.1)])
def test_while_records_flow_the_loop_rests_between_answers_forty_times_as_long(
    took_s: float, rest_s: float
) -> None:
    now_s = [0.0]
    mailbox, answered_s = QueryMailbox(lambda: now_s[0]), []

    def shards() -> dict[int, Shard]:
        answered_s.append(now_s[0])
        now_s[0] += took_s
        return {}

    asking = [threading.Thread(target=_ask_quietly, args=(mailbox,)) for _ in range(3)]
    for thread in asking:
        thread.start()
    while mailbox._waiting.qsize() < len(asking):
        pass
    again_s = 10.0 + took_s + rest_s
    for at_s in (10.0, again_s - 0.01, again_s + 0.01):
        now_s[0] = at_s
        mailbox.answer_one(shards, is_busy=True)
    mailbox.answer_one(shards)
    assert answered_s == [10.0, again_s + 0.01, again_s + 0.01 + took_s]
    for thread in asking:
        thread.join(LIMIT_S)


def test_more_queries_than_may_wait_are_not_taken() -> None:
    mailbox = QueryMailbox()
    threads = [
        threading.Thread(target=_ask_quietly, args=(mailbox,), daemon=True)
        for _ in range(MOST_WAITING)
    ]
    for thread in threads:
        thread.start()
    while mailbox._waiting.qsize() < MOST_WAITING:
        pass
    with pytest.raises(MailboxFull):
        mailbox.ask(QUERY, LIMIT_S)
    for _ in threads:
        mailbox.answer_one(dict)
    for thread in threads:
        thread.join(LIMIT_S)


def _ask_quietly(mailbox: QueryMailbox) -> Sequence[CountedShard] | None:
    try:
        return mailbox.ask(QUERY, LIMIT_S)
    except NoAnswer:
        return None


@pytest.mark.parametrize("error", [StoreDamaged("torn"), ValueError("a defect")])
def test_what_goes_wrong_in_an_answer_stops_the_loop_only_where_the_store_is_damaged(
    error: Exception,
) -> None:
    mailbox, refusals = QueryMailbox(), []

    def ask() -> None:
        try:
            mailbox.ask(QUERY, LIMIT_S)
        except NoAnswer as refused:
            refusals.append(str(refused))

    def fail() -> World:
        raise error

    thread = threading.Thread(target=ask)
    thread.start()
    while mailbox._waiting.empty():
        pass
    if isinstance(error, StoreDamaged):
        with pytest.raises(StoreDamaged):
            mailbox.answer_one(fail)  # type: ignore[arg-type]
    else:
        mailbox.answer_one(fail)  # type: ignore[arg-type]
    thread.join(LIMIT_S)
    assert refusals == [str(error)]


@contextmanager
def a_child(workers: Workers, name: str, world: World) -> Iterator[None]:
    asking, asked = Pipe()
    mailbox = QueryMailbox()
    workers.add(name, asking)
    receive_queries(asked, mailbox)
    with a_loop(mailbox, world):
        yield
    asking.close()


def test_every_child_answers() -> None:
    workers = Workers()
    with a_child(workers, "0", a_world("a")), a_child(workers, "1", a_world("b")):
        assert workers.ask(QUERY) == COUNTED * 2
        assert [one.ident for one in workers.ask(FindId(b"b0"))] == [b"b0"]


def test_a_child_that_has_died_gives_no_answer_until_another_takes_its_place() -> None:
    workers = Workers()
    asking, asked = Pipe()
    workers.add("0", asking)
    asked.close()
    with pytest.raises(NoAnswer):
        workers.ask(QUERY)
    with a_child(workers, "0", a_world()):
        assert workers.ask(QUERY) == COUNTED


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = Workers()
    asking, asked = Pipe()
    workers.add("0", asking)
    monkeypatch.setattr(queries, "ANSWER_WITHIN_S", 0.01)
    with pytest.raises(NoAnswer):
        workers.ask(QUERY)
    monkeypatch.setattr(queries, "ANSWER_WITHIN_S", LIMIT_S)
    number, _query = asked.recv()
    asked.send((number, []))

    def answer() -> None:
        number, _query = asked.recv()
        asked.send((number, COUNTED))

    thread = threading.Thread(target=answer)
    thread.start()
    assert workers.ask(QUERY) == COUNTED
    thread.join(LIMIT_S)


def test_a_child_started_later_hears_of_the_log_level(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Level] = []
    is_heard = threading.Semaphore(0)

    def note(level: Level) -> None:
        heard.append(level)
        is_heard.release()

    monkeypatch.setattr(queries, "change_level", note)
    workers = Workers()
    with a_child(workers, "0", World()):
        workers.set_level("debug")
        assert heard == ["debug", "debug"]
        with a_child(workers, "1", World()):
            for _ in range(3):
                assert is_heard.acquire(timeout=LIMIT_S)
    assert heard == ["debug"] * 3


def test_a_query_that_a_child_cannot_take_is_refused_as_such() -> None:
    class Full(QueryMailbox):
        def ask(self, query: Query[Any], timeout_s: float) -> Sequence[Any]:
            raise MailboxFull

    workers = Workers()
    asking, asked = Pipe()
    workers.add("0", asking)
    receive_queries(asked, Full())
    with pytest.raises(MailboxFull):
        workers.ask(QUERY)
    asking.close()
