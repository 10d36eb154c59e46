"""Topics deleted, recreated or truncated while a consumer has their records in hand."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from kafka_delay import ClientError, consumer_loop
from kafka_delay.consumer_loop import LogsBeganAnew
from tests.unit.client.group_runs import Member, World

OLD = 5


@pytest.fixture(autouse=True)
def _at_once() -> Iterator[None]:
    """Make settling due at once, and ask the broker only before each commit."""
    with patch.multiple(
        consumer_loop, LOOK_EVERY_S=0, SETTLE_EVERY_S=0, TOPICS_EVERY_S=1e9, FINISH_WITHIN_S=0.1
    ):
        yield


@pytest.fixture
def world() -> World:
    made = World([[b"%d" % n for n in range(OLD)]], {}, 60.0, is_orderly=False)
    made.share_out((0,))
    member = made.members[0]
    member.turn()
    for _ in range(2):
        member.end(0)
    member.turn()
    assert [job.record.read_from.offset for job, _ in member.running] == [2, 3, 4]
    assert made.group.committed[0].offset == 2
    return made


def begins_anew(member: Member) -> None:
    with pytest.raises(LogsBeganAnew):
        member.turn()


def successor(world: World) -> Member:
    world.kill(0)
    return world.members[0]


def handle_all(world: World, member: Member) -> list[int]:
    handled = []
    while not world.group.is_done():
        member.turn()
        handled += [job.record.read_from.offset for job, _ in member.running]
        while member.running:
            member.end(0)
    return handled


def test_before_a_commit_it_is_seen_that_the_topic_was_made_anew(world: World) -> None:
    """No record is read back: the new topic is longer than the old one."""
    member = world.members[0]
    world.group.make_anew(0, [b"k"] * 9)
    member.end(0)
    begins_anew(member)
    assert world.group.committed[0].offset == 0
    world.story.over.clear()
    assert handle_all(world, successor(world)) == list(range(9))


def test_so_it_is_when_offsets_fall(world: World) -> None:
    member = world.members[0]
    world.group.make_anew(0, [b"k"] * 3)
    member.consumer.positions[0] = 0
    begins_anew(member)
    assert world.group.committed[0].offset == 0
    assert handle_all(world, successor(world)) == [0, 1, 2]


def test_what_was_in_hand_of_the_old_topic_is_ignored_when_it_ends(world: World) -> None:
    member = world.members[0]
    (job, jobs), *_ = member.running
    world.group.make_anew(0, [b"k"] * 3)
    member.consumer.positions[0] = 0
    begins_anew(member)
    jobs.end(job, ValueError("too late"))
    assert not world.story.handed_over


def test_a_commit_of_partitions_given_up_is_not_of_the_old_topic_either(world: World) -> None:
    member = world.members[0]
    world.group.make_anew(0, [b"k"] * 9)
    for _ in range(3):
        member.end(0)
    member.consumer.take({0})
    assert world.group.committed[0].offset <= 0


def test_where_records_were_written_anew_all_behind_the_cut_is_read_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    member = world.members[0]
    member.consumer.may_go_back = True
    world.group.cut_off(0, 1, [b"k"] * 6)
    member.consumer.positions[0] = 0
    begins_anew(member)
    assert world.group.committed[0].offset == 1
    assert "orders/0: the log was cut off. It is read again from offset 1" in caplog.text
    assert handle_all(world, successor(world)) == list(range(1, 7))


def test_records_in_hand_before_the_cut_come_again(world: World) -> None:
    member = world.members[0]
    world.group.cut_off(0, 4, [b"k"] * 6)
    member.consumer.positions[0] = 0
    begins_anew(member)
    assert world.group.committed[0].offset == 2


def test_records_that_come_twice_are_left_out_as_long_as_the_log_is_the_same(world: World) -> None:
    member = world.members[0]
    member.consumer.positions[0] = 0
    member.turn()
    assert [job.record.read_from.offset for job, _ in member.running] == [2, 3, 4]


def test_when_no_broker_says_whether_it_is_the_same_they_are_read_again(world: World) -> None:
    member = world.members[0]
    world.group.answers = False
    member.consumer.positions[0] = 0
    member.consumer.may_go_back = True
    begins_anew(member)
    assert world.group.committed[0].offset == 0


def test_nothing_is_committed_before_a_broker_says_that_the_topic_is_the_same(
    world: World,
) -> None:
    member = world.members[0]
    world.group.answers = False
    member.end(0)
    member.turn()
    assert world.group.committed[0].offset == 2
    world.group.answers = True
    member.turn()
    assert world.group.committed[0].offset == 3


def test_of_a_topic_that_is_gone_nothing_is_committed_and_if_it_comes_back_it_goes_on(
    world: World,
) -> None:
    """A broker that has just started may not know the topic yet."""
    member = world.members[0]
    world.group.topic_id = None
    member.end(0)
    member.turn()
    assert world.group.committed[0].offset == 2
    world.group.topic_id = "id-0"
    member.turn()
    assert world.group.committed[0].offset == 3


def test_a_consumer_that_stops_and_gets_no_answer_says_so_in_a_sentence(world: World) -> None:
    member = world.members[0]
    for _ in range(3):
        member.end(0)
    world.group.answers = False
    with pytest.raises(ClientError, match=r"the last offsets could not be committed within .* s"):
        member.stop()
