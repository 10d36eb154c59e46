"""Partitions without an owner are found, and a rebalance is requested."""

from __future__ import annotations

from concurrent.futures import Future

from proxy.kafka.group import (
    LOOKS_UNTIL_WHOLE,
    OWNERS_EVERY_S,
    PAUSE_S,
    GroupOwners,
    OwnersUnknown,
    UnassignedPartitions,
)

TOPIC = "timer.ingress"


class Group:
    def __init__(self, *owned: int) -> None:
        self.owned = owned
        self.is_stable = self.is_reachable = True
        self.asked = 0

    def ask(self) -> Future[GroupOwners]:
        self.asked += 1
        answer: Future[GroupOwners] = Future()
        if self.is_reachable:
            places = frozenset((TOPIC, number) for number in self.owned)
            answer.set_result(GroupOwners(self.is_stable, places))
        else:
            answer.set_exception(OwnersUnknown("no broker answers"))
        return answer


class Watch:
    """A watch over partitions 0 to 3 with its own clock. It counts the rebalances."""

    def __init__(self, group: Group) -> None:
        self.rebalances = 0
        self._now_s = 0.0
        places = {(TOPIC, number) for number in range(4)}
        self._watch = UnassignedPartitions(group.ask, places, self._rebalance, lambda: self._now_s)

    def look(self, times: int, apart_s: float = OWNERS_EVERY_S) -> None:
        for _ in range(times):
            self._now_s += apart_s
            self._watch.look()
            self._watch.look()

    def _rebalance(self) -> None:
        self.rebalances += 1


def test_group_that_owns_everything_is_left_alone_and_soon_asked_no_more() -> None:
    group = Group(0, 1, 2, 3)
    watch = Watch(group)
    watch.look(10)
    assert (watch.rebalances, group.asked) == (0, LOOKS_UNTIL_WHOLE)


def test_partition_without_owner_asks_for_a_rebalance_at_the_second_look() -> None:
    watch = Watch(Group(0, 1, 2))
    watch.look(1)
    assert watch.rebalances == 0
    watch.look(1)
    assert watch.rebalances == 1


def test_finding_that_lasts_asks_for_another_rebalance_after_a_pause() -> None:
    group = Group()
    watch = Watch(group)
    watch.look(8)
    assert (watch.rebalances, group.asked) == (1, 2)
    watch.look(2, apart_s=PAUSE_S)
    assert (watch.rebalances, group.asked) == (2, 4)


def test_partitions_on_their_way_to_a_new_owner_are_no_finding() -> None:
    group = Group(0, 1, 2)
    watch = Watch(group)
    watch.look(1)
    group.owned = (0, 1, 3)
    watch.look(1)
    group.owned = (0, 1, 2, 3)
    watch.look(5)
    assert watch.rebalances == 0


def test_rebalance_in_progress_is_waited_for() -> None:
    group = Group(0)
    group.is_stable = False
    watch = Watch(group)
    watch.look(LOOKS_UNTIL_WHOLE + 1)
    assert watch.rebalances == 0
    group.is_stable = True
    watch.look(2)
    assert watch.rebalances == 1


def test_group_is_looked_at_until_it_was_whole_several_times_in_a_row() -> None:
    group = Group(0, 1, 2, 3)
    watch = Watch(group)
    watch.look(LOOKS_UNTIL_WHOLE - 1)
    group.owned = (0,)
    watch.look(1)
    group.owned = (0, 1, 2, 3)
    watch.look(LOOKS_UNTIL_WHOLE - 1)
    group.owned = (0, 1)
    watch.look(2)
    assert watch.rebalances == 1


def test_broker_that_does_not_answer_is_asked_again_later() -> None:
    group = Group(0)
    group.is_reachable = False
    watch = Watch(group)
    watch.look(3)
    assert (watch.rebalances, group.asked) == (0, 3)
    group.is_reachable = True
    watch.look(2)
    assert watch.rebalances == 1
