"""Ownership of a static member's place, and the reaction to a stranger."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from proxy.errors import InstanceConflict
from proxy.kafka.group import LOOK_EVERY_S, MARGIN_S, Member, StaticMember

OURS, OTHER = (f"pod-0-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "ab")
SESSION_S = 10.0


class Group:
    """A consumer group that loses a member after `goes_after_s`."""

    def __init__(self, folder: Path, *idents: str, goes_after_s: float = 1e9) -> None:
        self._idents, self._goes_after_s = idents, goes_after_s
        self.waited_s = self.beats = 0.0
        self.is_reachable = True
        self.member = StaticMember("pod", 0, folder, self._ask, self._sleep)

    def refuse_twin(self) -> float:
        self.member.refuse_twin(SESSION_S, self._heartbeat)
        return self.waited_s

    def _ask(self) -> list[Member]:
        if not self.is_reachable:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        is_there = self.waited_s < self._goes_after_s
        return [Member(ident, "/10.0.0.7") for ident in self._idents if is_there]

    def _sleep(self, seconds: float) -> None:
        self.waited_s += seconds

    def _heartbeat(self) -> None:
        self.beats += 1


def test_a_group_without_a_member_of_this_name_is_joined_at_once(tmp_path: Path) -> None:
    others = OTHER.replace("pod-0", "pod-1"), OTHER.replace("pod-0", "pod-0-0"), "rdkafka-1"
    assert Group(tmp_path, *others).refuse_twin() == 0


def test_the_place_of_the_own_predecessor_is_taken_at_once(tmp_path: Path) -> None:
    group = Group(tmp_path, OURS)
    group.member.joined(OURS)
    assert group.refuse_twin() == 0


def test_a_member_that_dies_is_waited_for(tmp_path: Path) -> None:
    group = Group(tmp_path, OTHER, goes_after_s=4.0)
    group.member.joined(OURS)
    assert group.refuse_twin() == 4.0
    assert group.beats == 4.0 / LOOK_EVERY_S


def test_a_member_that_outlives_its_session_is_another_process(tmp_path: Path) -> None:
    group = Group(tmp_path, OTHER)
    with pytest.raises(InstanceConflict, match=r"pod-0: it is alive .* at /10\.0\.0\.7"):
        group.refuse_twin()
    assert group.waited_s == SESSION_S + MARGIN_S


def test_where_nobody_answers_nothing_is_waited_for(tmp_path: Path) -> None:
    group = Group(tmp_path, OTHER)
    group.is_reachable = False
    assert group.refuse_twin() == 0


def test_a_folder_that_cannot_be_written_costs_the_memory_of_the_member_alone(
    tmp_path: Path,
) -> None:
    group = Group(tmp_path / "missing", OURS, goes_after_s=2.0)
    group.member.joined(OURS)
    assert group.refuse_twin() == 2.0
