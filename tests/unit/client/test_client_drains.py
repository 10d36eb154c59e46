"""A consumer that stops or gives partitions up while handlers run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from kafka_delay import consumer_loop
from kafka_delay.handlers import Handling, Result
from tests.unit.client.group_runs import Member, World

WITHIN_S = 60.0

Drain = Callable[[Member], None]


def stop(member: Member) -> None:
    member.stop()


def give_up(member: Member) -> None:
    member.consumer.take({0})


in_both_ways = pytest.mark.parametrize("drain", [stop, give_up])


def at_work(within_s: float = WITHIN_S) -> World:
    world = World([[b"a", b"b"], []], {}, within_s, is_orderly=False)
    world.share_out((0, 0))
    world.members[0].turn()
    return world


@contextmanager
def at_each_look(*steps: Callable[[], object]) -> Iterator[None]:
    looks, left = Handling.results, list(steps)

    def look(handling: Handling, wait_s: float) -> list[Result]:
        if left:
            left.pop(0)()
        return looks(handling, wait_s)

    with (
        patch.multiple(consumer_loop, LOOK_EVERY_S=0, SETTLE_EVERY_S=0),
        patch.object(Handling, "results", look),
    ):
        yield


@in_both_ways
def test_what_has_ended_is_committed_before_the_slowest_handler_ends(drain: Drain) -> None:
    world = at_work()
    member, committed = world.members[0], []

    def look() -> None:
        committed.append(world.group.committed[0].offset)
        member.end(0)

    with at_each_look(lambda: member.end(0), look):
        drain(member)
    assert (committed, world.group.committed[0].offset) == ([1], 2)


def test_what_ends_the_consumer_while_it_gives_partitions_up_costs_no_commit() -> None:
    world = at_work()
    member = world.members[0]
    job, jobs = member.running.pop(1)

    def end() -> None:
        member.end(0)
        jobs.end(job, SystemExit())

    with at_each_look(end), pytest.raises(SystemExit):
        give_up(member)
    assert world.group.committed[0].offset == 1


def test_while_partitions_are_given_up_a_commit_that_is_refused_is_tried_at_the_end_alone() -> None:
    world = at_work()
    member = world.members[0]
    world.group.refuses_commits = 1
    with at_each_look(lambda: member.end(0), lambda: None, lambda: member.end(0)):
        give_up(member)
    assert (world.group.refuses_commits, world.group.committed[0].offset) == (0, 2)


def test_the_last_commit_is_tried_again_when_the_group_is_being_shared_out() -> None:
    world = at_work()
    member = world.members[0]
    member.end(0)
    member.end(0)
    world.group.refuses_commits = 2
    with at_each_look():
        stop(member)
    assert world.group.committed[0].offset == 2


def test_but_not_for_ever() -> None:
    world = at_work(within_s=0)
    member = world.members[0]
    member.end(0)
    member.end(0)
    world.group.refuses_commits = 1_000
    with at_each_look():
        stop(member)
    assert world.group.refuses_commits == 998
