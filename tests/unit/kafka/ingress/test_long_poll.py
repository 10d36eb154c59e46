"""While the ingress is quiet, a second consumer waits in place of the group's (`LongPoll`)."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from proxy.kafka.ingress import LONGEST_S, MOMENT_S, QUIET_S, Ingress, LongPoll
from tests.support.simulation.stand_in import Record

NEXT = {0: 17, 3: 5}
END = KafkaError(KafkaError._PARTITION_EOF, "end")


class Fetching:
    """The group's consumer, with its paused partitions and seeks."""

    def __init__(self) -> None:
        self.paused: set[int] = set()
        self.sought: dict[int, int] = {}

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused |= {place.partition for place in places}

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused -= {place.partition for place in places}

    def seek(self, place: TopicPartition) -> None:
        assert place.partition not in self.paused
        self.sought[place.partition] = place.offset
        raise KafkaException(KafkaError(KafkaError._STATE))


class Listening:
    """The second consumer, with its positions. It reports each partition's end once."""

    def __init__(self) -> None:
        self.waits_for: dict[int, int] = {}
        self.ends: list[tuple[int, int]] = []
        self.comes = False
        self.is_open = True

    def assign(self, places: list[TopicPartition]) -> None:
        self.waits_for = {place.partition: place.offset for place in places}
        self.ends = [*self.waits_for.items()]

    def unassign(self) -> None:
        self.waits_for = {}

    def poll(self, _wait_s: float) -> Record | None:
        if self.ends:
            return Record("", *self.ends.pop(), None, None, [], -1, END)
        return Record("", 0, 17, None, None, [], 0) if self.comes else None

    def close(self) -> None:
        self.is_open = False


class Quiet:
    """A quiet ingress as the loop sees it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.consumer, self.listener, self.made = Fetching(), Listening(), 0
        self.long_poll = LongPoll(
            cast(Any, self.consumer), self._make, "timer.ingress", lambda: self.now_s
        )

    def _make(self) -> Any:
        self.made += 1
        return self.listener

    def wait(self, *, seconds: float = 0.0, is_idle: bool = True) -> float:
        self.now_s += seconds
        return self.long_poll.wait(0.05, lambda: NEXT, is_idle=is_idle)

    def is_waiting(self) -> bool:
        assert self.consumer.paused == set(self.listener.waits_for)
        return bool(self.consumer.paused)


@pytest.fixture
def quiet() -> Quiet:
    quiet = Quiet()
    quiet.long_poll.reached(NEXT)
    assert quiet.wait(seconds=QUIET_S) == 0.0
    assert quiet.is_waiting()
    return quiet


def test_it_begins_after_a_while_where_nothing_was_read_last(quiet: Quiet) -> None:
    assert quiet.listener.waits_for == NEXT
    assert [quiet.wait(seconds=1.0) for _ in range(5)] == [0.0] * 5
    assert quiet.made == 1


def test_while_records_come_the_group_s_consumer_is_waited_for() -> None:
    quiet = Quiet()
    for _ in range(10):
        quiet.long_poll.heard()
        quiet.long_poll.reached(NEXT)
        assert quiet.wait(seconds=QUIET_S / 2) == 0.05
    assert (quiet.made, quiet.is_waiting()) == (0, False)


def test_while_shards_have_something_to_do_it_does_not_begin_but_goes_on(quiet: Quiet) -> None:
    assert quiet.wait(is_idle=False) == 0.0
    assert quiet.is_waiting()
    quiet.long_poll.end()
    quiet.long_poll.reached(NEXT)
    assert quiet.wait(seconds=2 * QUIET_S, is_idle=False) == 0.05


def test_once_something_comes_the_rest_of_the_time_is_the_consumer_s(quiet: Quiet) -> None:
    quiet.listener.comes = True
    assert quiet.wait() == 0.05
    assert not quiet.is_waiting()
    assert quiet.consumer.sought == NEXT, "else it may sleep for a second"
    assert quiet.wait() == 0.05, "and not at once again"


def test_it_does_not_begin_again_before_the_consumer_is_at_all_ends(quiet: Quiet) -> None:
    """A pause discards a fetch: a batch that takes long to unpack would never arrive."""
    quiet.listener.comes = True
    assert quiet.wait() == 0.05
    quiet.listener.comes = False
    assert quiet.wait(seconds=60 * QUIET_S) == 0.05
    quiet.long_poll.reached({0: 16, 3: 5})
    assert quiet.wait() == 0.05
    quiet.long_poll.reached({0: 17})
    assert quiet.wait() == 0.0
    assert quiet.is_waiting()


def test_an_end_beyond_what_is_read_is_something(quiet: Quiet) -> None:
    """The offsets in between were aborted."""
    quiet.listener.ends = [(3, 5), (0, 17)]
    assert quiet.wait() == 0.0
    assert quiet.is_waiting()
    quiet.listener.ends = [(3, 5), (0, 18)]
    assert quiet.wait() == 0.05
    assert not quiet.is_waiting()


def test_nothing_is_asked_for_where_nothing_is_to_be_read() -> None:
    quiet = Quiet()
    quiet.now_s += QUIET_S
    assert quiet.long_poll.wait(0.05, dict, is_idle=True) == 0.05
    assert (quiet.made, quiet.is_waiting()) == (0, False)


def test_the_group_s_consumer_fetches_for_a_moment_now_and_then(quiet: Quiet) -> None:
    for _ in range(3):
        assert quiet.wait(seconds=LONGEST_S) == 0.0
        assert not quiet.is_waiting()
        assert quiet.wait(seconds=MOMENT_S / 2) == 0.05
        quiet.long_poll.reached(NEXT)
        assert quiet.wait(seconds=MOMENT_S / 2) == 0.0
        assert quiet.is_waiting()
    assert quiet.made == 1


def test_given_up_it_is_closed(quiet: Quiet) -> None:
    quiet.long_poll.close()
    assert not quiet.listener.is_open
    quiet.long_poll.end()


class Member(Fetching):
    """Consumer without records. It reports a partition's end once, and again after a seek."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[Record] = []

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        assert not self.paused
        self.ends += [end_of(place) for place in places]

    def incremental_unassign(self, _places: list[TopicPartition]) -> None:
        assert not self.paused

    def seek(self, place: TopicPartition) -> None:
        self.ends.append(end_of(place))
        super().seek(place)

    def poll(self, _wait_s: float) -> Record | None:
        return self.ends.pop() if self.ends else None

    def consume(self, _most: int, _wait_s: float) -> list[Record]:
        ends, self.ends = self.ends, []
        return ends


def end_of(place: TopicPartition) -> Record:
    return Record(place.topic, place.partition, place.offset, None, None, [], -1, END)


class Owner:
    def take_over(self, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 10)

    def hand_over(self, partitions: list[int]) -> None:
        """Do nothing."""

    lose = hand_over


def waiting() -> tuple[Ingress, Member, Listening]:
    now_s, member, listener = iter(range(0, 10_000, 3)), Member(), Listening()
    ingress = Ingress(
        cast(Any, member), "timer.ingress", lambda: cast(Any, listener), lambda: next(now_s)
    )
    ingress.join(Owner())
    change(member, "on_assign", 0, 3)
    fetch(ingress)
    assert listener.waits_for == {0: 10, 3: 10}
    return ingress, member, listener


def fetch(ingress: Ingress) -> None:
    ingress.fetch(0.05, is_idle=True)
    ingress.fetch(0.05, is_idle=True)


def change(member: Member, callback: str, *partitions: int) -> None:
    member.callbacks[callback](member, [TopicPartition("timer.ingress", p) for p in partitions])


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke", "on_lost"])
def test_as_partitions_come_and_go_none_is_paused_and_those_owned_are_waited_for_again(
    callback: str,
) -> None:
    ingress, member, listener = waiting()
    change(member, callback, 4 if callback == "on_assign" else 3)
    assert (member.paused, listener.waits_for) == (set(), {})
    fetch(ingress)
    owned = {0, 3, 4} if callback == "on_assign" else {0}
    assert member.paused == set(listener.waits_for) == owned


def test_what_is_held_back_is_not_waited_for_and_stays_held() -> None:
    ingress, member, listener = waiting()
    ingress.pause({0})
    assert (member.paused, listener.waits_for) == ({0}, {})
    fetch(ingress)
    assert (member.paused, listener.waits_for) == ({0, 3}, {3: 10})
    member.sought.clear()
    ingress.resume({0, 7})
    assert (member.paused, listener.waits_for) == (set(), {})
    assert member.sought == {0: 10, 3: 10}
