"""The members of the consumer group, and their partitions."""

import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from proxy.errors import InstanceConflict

log = structlog.get_logger(__name__)


# Calls to a group's coordinator (describe, list offsets) can abort the process when a connection
# ends (librdkafka issues 4605 and 5040). `list_groups` asks every broker, and can only time out.

ASK_S: Final = 10.0
COUNT: Final = struct.Struct(">i")
SHORT: Final = struct.Struct(">h")

Place = tuple[str, int]
"""Topic and partition."""


class OwnersUnknown(Exception):
    """No answer came in time, or the answer cannot be read."""


class GroupOwners(NamedTuple):
    """Partitions with an owner in the group. `owned` is empty while the group rebalances."""

    is_stable: bool
    owned: frozenset[Place]
    members: frozenset[str] = frozenset()
    """Member ids, also during a rebalance."""

    def instances(self) -> set[str]:
        """Return the names of the instances with workers in the group."""
        found = map(STATIC_MEMBER.fullmatch, self.members)
        return {one[1] for one in found if one is not None}

    def has_others(self, instance: str) -> bool:
        """Whether workers of another instance are in the group."""
        return bool(self.instances() - {instance})


def ask_in_thread(kafka: Mapping[str, Any], group_id: str) -> Future[GroupOwners]:
    """Ask without blocking. Within about ASK_S, the future has the answer or OwnersUnknown. Each
    call makes a new client, because an old client would wait for brokers that are down."""
    answer: Future[GroupOwners] = Future()

    def ask() -> None:
        try:
            answer.set_result(group_owners(AdminClient(dict(kafka)).list_groups(group_id, ASK_S)))
        except (KafkaException, OwnersUnknown) as error:
            answer.set_exception(OwnersUnknown(str(error)))

    threading.Thread(target=ask, name="group owners", daemon=True).start()
    return answer


def group_owners(groups: list[Any]) -> GroupOwners:
    """Return the owners from an answer of `list_groups`. Raises OwnersUnknown."""
    answered = [group for group in groups if group.error is None]
    stable = [group for group in answered if group.state == "Stable"]
    try:
        owned = frozenset(
            place
            for group in stable
            for member in group.members
            for place in _assigned(member.assignment)
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise OwnersUnknown(f"the assignment of a member cannot be read: {error}") from error
    members = frozenset(str(member.id) for group in answered for member in group.members)
    return GroupOwners(bool(stable), owned, members)


def _assigned(assignment: bytes) -> Iterator[Place]:
    """Parse Kafka's ConsumerProtocolAssignment."""
    if not assignment:
        return
    at = SHORT.size
    (topics,) = COUNT.unpack_from(assignment, at)
    at += COUNT.size
    for _ in range(topics):
        (length,) = SHORT.unpack_from(assignment, at)
        at += SHORT.size
        (name,) = struct.unpack_from(f">{max(0, length)}s", assignment, at)
        at += len(name)
        (count,) = COUNT.unpack_from(assignment, at)
        at += COUNT.size
        numbers = struct.unpack_from(f">{max(0, count)}i", assignment, at)
        at += COUNT.size * len(numbers)
        yield from ((name.decode(), number) for number in numbers)


# Kafka gives a static member's place to the last process that joins. So a restart takes over at
# once, and two live processes of one name would replace each other forever. The broker makes a
# member id for each process. A file in the data folder keeps the id of the worker's last process.
# So another id with this name belongs to a process with another data folder.

LOOK_EVERY_S: Final = 0.5
MARGIN_S: Final = 3.0
"""The group drops a dead member at most this long after the session time-out."""
MEMBER_FILE: Final = "member-"
UUID: Final = "[-_][0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""The suffix of a static member's id."""
STATIC_MEMBER: Final = re.compile(rf"(.+)-\d+{UUID}")
"""The member id that a broker makes for a worker (`client_settings`)."""


class Member(NamedTuple):
    """A member's id, and its host as the broker sees it."""

    ident: str
    host: str


class StaticMember:
    """The static member of a worker. `ask` may raise KafkaException."""

    def __init__(
        self,
        instance: str,
        worker: int,
        data_dir: Path,
        ask: Callable[[], list[Member]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = f"{instance}-{worker}"
        self._ask, self._sleep = ask, sleep
        self._file = data_dir / f"{MEMBER_FILE}{worker}"

    def joined(self, ident: str) -> None:
        with suppress(OSError):
            self._file.write_text(ident, "utf-8")

    def refuse_twin(self, session_s: float, heartbeat: Callable[[], None]) -> None:
        """Wait until the group has dropped another member of this name. Raises InstanceConflict if
        that member is still there after `session_s`."""
        if (other := self._other()) is None:
            return
        log.warning(
            "another process has this instance id: waiting to see whether it is alive",
            member=other.ident,
            host=other.host,
            at_most_s=session_s + MARGIN_S,
        )
        for _ in range(round((session_s + MARGIN_S) / LOOK_EVERY_S)):
            self._sleep(LOOK_EVERY_S)
            heartbeat()
            if (other := self._other()) is None:
                return
        raise InstanceConflict(self.name, f"it is alive in the consumer group, at {other.host}")

    def is_other(self, ident: str) -> bool:
        """Whether the member id belongs to another process with this name."""
        return bool(re.fullmatch(re.escape(self.name) + UUID, ident)) and ident != self._last()

    def _other(self) -> Member | None:
        try:
            return next((one for one in self._ask() if self.is_other(one.ident)), None)
        except KafkaException as error:
            log.debug("members of the group not known", error=str(error))
            return None

    def _last(self) -> str:
        try:
            return self._file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""


def group_members(admin: AdminClient, group_id: str) -> list[Member]:
    """Ask for the group's members, without its coordinator."""
    groups = admin.list_groups(group_id, ASK_S)
    return [Member(str(one.id), str(one.client_host)) for group in groups for one in group.members]


# A static member can restart between two rounds of an incremental rebalance. It gets the partitions
# of the first round, and Kafka skips the second. Then some partitions have no owner until a member
# joins or leaves. So each worker watches for such partitions. If the worker finds some, it lets an
# idle member join and leave.

OWNERS_EVERY_S: Final = 3.0
LOOKS_IN_A_ROW: Final = 2
"""This many answers must show the same unowned partitions, because a rebalance may have begun."""
LOOKS_UNTIL_WHOLE: Final = 5
"""Watching ends after this many answers in a row in which each partition has an owner."""
PAUSE_S: Final = 30.0
"""The pause after a requested rebalance, because other members may have requested it, too."""
STAY_S: Final = 15.0


class UnassignedPartitions:
    """Watches, without blocking, until each partition has an owner. Later only a member that
    arrives can leave partitions without an owner, and this member watches, too."""

    def __init__(
        self,
        ask: Callable[[], Future[GroupOwners]],
        partitions: set[Place],
        rebalance: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._partitions, self._rebalance = ask, partitions, rebalance
        self._now_s = now_s
        self._next_look_s = now_s() + OWNERS_EVERY_S
        self._answer: Future[GroupOwners] | None = None
        self._found: set[Place] = set()
        self._looks = self._whole = 0

    def watch(self, partitions: set[Place]) -> None:
        self._partitions = partitions
        self._looks = self._whole = 0
        self._next_look_s = self._now_s() + PAUSE_S

    def look(self) -> None:
        if self._answer is not None:
            if self._answer.done():
                self._take(self._answer)
                self._answer = None
        elif self._whole < LOOKS_UNTIL_WHOLE and self._now_s() >= self._next_look_s:
            self._next_look_s = self._now_s() + OWNERS_EVERY_S
            self._answer = self._ask()

    def _take(self, answer: Future[GroupOwners]) -> None:
        try:
            group = answer.result()
        except OwnersUnknown as error:
            log.debug("owners of partitions not known", error=str(error))
            return
        unassigned = self._partitions - group.owned if group.is_stable else set[Place]()
        is_same = bool(unassigned) and unassigned == self._found
        self._looks = self._looks + 1 if is_same else bool(unassigned)
        self._whole = self._whole + 1 if group.is_stable and not unassigned else 0
        self._found = unassigned
        if self._looks >= LOOKS_IN_A_ROW:
            log.warning(
                "partitions without an owner: requesting a rebalance", found=sorted(unassigned)
            )
            self._looks = 0
            self._next_look_s = self._now_s() + PAUSE_S
            self._rebalance()


def force_rebalance(kafka: Mapping[str, Any], group_id: str, topic: str) -> None:
    """Make the group rebalance: join as an idle member and leave, in a thread."""
    settings = {
        **kafka,
        "group.id": group_id,
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    join = partial(_join_and_leave, settings, topic)
    threading.Thread(target=join, name="rebalance", daemon=True).start()


def _join_and_leave(settings: Mapping[str, Any], topic: str) -> None:
    arrived = threading.Event()

    def on_assign(member: Consumer, places: list[Any]) -> None:
        arrived.set()
        member.incremental_assign(places)
        member.pause(places)

    member = Consumer(dict(settings))
    try:
        member.subscribe([topic], on_assign=on_assign)
        deadline = time.monotonic() + STAY_S
        while not arrived.is_set() and time.monotonic() < deadline:
            member.poll(0.1)
    finally:
        member.close()


# When a static member ends, Kafka keeps its place until the session time-out. Until then nobody
# serves its partitions. `close` does not make Kafka drop a static member. `unsubscribe` does, once
# the member's partitions are revoked (librdkafka 2.16).

LEFT_WITHIN_S: Final = 5.0


def leave_group(member: Consumer) -> None:
    """Revoke the member's partitions, and let others have them before the session time-out."""
    member.unsubscribe()
    deadline = time.monotonic() + LEFT_WITHIN_S
    while member.memberid() and time.monotonic() < deadline:
        member.poll(0.05)
