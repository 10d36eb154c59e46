"""Which partitions the members of a consumer group own, as the brokers tell it.

librdkafka's admin calls to a group's coordinator (describe, list offsets) can abort the whole
process when a connection ends while they wait (its issues 4605 and 5040). `list_groups` is older,
asks every broker, and knows only how to time out.
"""

import struct
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

ASK_S: Final = 10.0
COUNT: Final = struct.Struct(">i")
SHORT: Final = struct.Struct(">h")

Place = tuple[str, int]
"""Topic and partition."""


class OwnersUnknown(Exception):
    """No answer in time, or one that cannot be read; why is its text."""


class GroupOwners(NamedTuple):
    """`owned` says nothing while the group rebalances."""

    is_stable: bool
    owned: frozenset[Place]
    members: frozenset[str] = frozenset()
    """Ids of the members, also while the group rebalances."""


def ask_in_thread(kafka: Mapping[str, Any], group_id: str) -> Future[GroupOwners]:
    """Ask without waiting; the answer, or OwnersUnknown, has come soon after ASK_S.

    `kafka` are the settings of the client, which is made for this one question: one that has known
    a broker that is down now would wait for that broker each time.
    """
    answer: Future[GroupOwners] = Future()
    thread = threading.Thread(
        target=_ask, args=(kafka, group_id, answer), name="group owners", daemon=True
    )
    thread.start()
    return answer


def _ask(kafka: Mapping[str, Any], group_id: str, answer: Future[GroupOwners]) -> None:
    try:
        answer.set_result(group_owners(AdminClient(dict(kafka)).list_groups(group_id, ASK_S)))
    except KafkaException as error:
        answer.set_exception(OwnersUnknown(str(error)))
    except OwnersUnknown as error:
        answer.set_exception(error)


def group_owners(groups: list[Any]) -> GroupOwners:
    """From what `list_groups` returned: none, or the group from the broker that coordinates it.

    Raises OwnersUnknown where a member's assignment cannot be read.
    """
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
    """Kafka's ConsumerProtocolAssignment: version, then topics, each with its partitions."""
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
