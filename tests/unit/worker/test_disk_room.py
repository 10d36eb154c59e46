"""When a worker with a full disk yields its partitions, and when it serves."""

from __future__ import annotations

import errno
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.config.machine import DiskReserve
from proxy.kafka.group import GroupOwners, OwnersUnknown
from proxy.worker.worker import (
    ALONE_FACTOR,
    ASK_EVERY_S,
    LEAVE_AFTER_S,
    PROBE,
    SPREAD_S,
    DiskRoom,
)
from storage.folder import Files

UUID = "-12345678-1234-1234-1234-123456789abc"
OTHER, OWN = f"eu-1-0{UUID}", f"eu-0-3{UUID}"
FULL, ROOM = 399, 1_000


@dataclass
class Machine:
    """A disk of 1,000 bytes with a reserve of 400, a clock, and the group to join."""

    data_dir: Path
    free_bytes: int = FULL
    members: frozenset[str] | None = frozenset()
    partition_bytes: int = 0
    passed_s: float = 0.0
    heartbeats: int = 0
    later: list[tuple[float, str, object]] = field(default_factory=list)

    def ask(self) -> Future[GroupOwners]:
        answer: Future[GroupOwners] = Future()
        if self.members is None:
            answer.set_exception(OwnersUnknown("the broker is away"))
        else:
            answer.set_result(GroupOwners(True, frozenset(), self.members))
        return answer

    def pass_s(self, seconds: float) -> None:
        self.passed_s += seconds
        for at_s, name, value in self.later:
            if self.passed_s >= at_s:
                setattr(self, name, value)

    def heartbeat(self) -> None:
        self.heartbeats += 1

    def room(self) -> DiskRoom:
        return DiskRoom(
            "eu-0",
            self.data_dir,
            DiskReserve(400),
            self.partition_bytes,
            lambda: (1_000, self.free_bytes),
            self.ask,
            self.heartbeat,
            lambda: self.passed_s,
            self.pass_s,
        )

    def waited_s(self, at_most_s: float = 1_000) -> float:
        before = self.passed_s
        self.room().wait(lambda: self.passed_s >= before + at_most_s)
        return self.passed_s - before


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def left_after_s(machine: Machine, room: DiskRoom, at_most_s: int) -> int | None:
    for second in range(at_most_s):
        if room.must_leave(is_full=True):
            return second
        machine.pass_s(1)
    return None


def test_with_room_nobody_is_asked_and_nothing_is_waited_for(machine: Machine) -> None:
    machine.free_bytes, machine.members = ROOM, None
    assert machine.waited_s() == 0
    assert not (machine.data_dir / PROBE).exists()


def test_below_the_reserve_others_serve_until_there_is_room(machine: Machine) -> None:
    machine.members = frozenset({OTHER})
    machine.later = [(150, "free_bytes", ROOM)]
    with capture_logs() as logs:
        assert machine.waited_s() == 150
    assert machine.heartbeats == 150
    assert [one["log_level"] for one in logs] == ["error"] * 3
    assert logs[0]["why"] == "399 bytes are free, less than disk_reserve (400 bytes)"
    assert "Free some space" in logs[0]["remedy"]


@pytest.mark.parametrize(
    "members", [frozenset(), frozenset({OWN}), frozenset({f"rdkafka{UUID}"})], ids=str
)
def test_who_is_alone_in_the_group_serves_all_the_same(
    machine: Machine, members: frozenset[str]
) -> None:
    """Its own former place and a member that only triggers a rebalance do not count."""
    machine.members = members
    assert machine.waited_s() == 0


def test_when_the_last_other_has_gone_it_serves(machine: Machine) -> None:
    machine.members = frozenset({OTHER})
    machine.later = [(60, "members", frozenset())]
    assert 60 <= machine.waited_s() <= 60 + ASK_EVERY_S


def test_while_the_group_is_not_known_it_waits_and_a_stop_ends_that(machine: Machine) -> None:
    machine.members = None
    assert machine.waited_s(at_most_s=100) == 100


def test_a_disk_that_takes_no_file_has_no_room_whatever_is_free(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    machine.free_bytes, machine.members = ROOM, frozenset({OTHER})
    monkeypatch.setattr(Files, "allocate", refuse)
    with capture_logs() as logs:
        assert machine.waited_s(at_most_s=30) == 30
    assert (logs[0]["why"], "quota" in logs[0]["remedy"]) == ("Disk quota exceeded", True)


def test_a_disk_without_room_for_a_new_partition_leaves_it_to_others(machine: Machine) -> None:
    machine.free_bytes, machine.members = ROOM, frozenset({OTHER})
    machine.partition_bytes = 1 << 60
    assert machine.waited_s(at_most_s=30) == 30
    assert not (machine.data_dir / PROBE).exists()
    machine.members = frozenset()
    assert machine.waited_s() == 0


def test_a_running_one_leaves_after_minutes_without_room_if_others_serve(machine: Machine) -> None:
    machine.members = frozenset({OTHER})
    after_s = left_after_s(machine, machine.room(), 1_000)
    assert after_s is not None
    assert LEAVE_AFTER_S <= after_s <= LEAVE_AFTER_S + SPREAD_S + ASK_EVERY_S


@pytest.mark.parametrize("members", [frozenset(), frozenset({OWN}), None], ids=str)
def test_a_running_one_stays_while_it_knows_of_no_other(
    machine: Machine, members: frozenset[str] | None
) -> None:
    machine.members = members
    assert left_after_s(machine, machine.room(), 1_000) is None


def test_room_in_between_begins_the_time_anew(machine: Machine) -> None:
    machine.members, room = frozenset({OTHER}), machine.room()
    for _ in range(10):
        assert left_after_s(machine, room, int(LEAVE_AFTER_S) - 10) is None
        machine.pass_s(1)
        assert not room.must_leave(is_full=False)


def test_one_that_began_without_room_stays_longer(machine: Machine) -> None:
    """Otherwise two workers with full disks would yield to each other for ever."""
    room = machine.room()
    room.wait(lambda: False)
    machine.members = frozenset({OTHER})
    after_s = left_after_s(machine, room, 10_000)
    assert after_s is not None
    assert after_s >= ALONE_FACTOR * LEAVE_AFTER_S
