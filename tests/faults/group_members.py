"""The members of a consumer group, seen and removed from outside, as Java's admin client can.

librdkafka's has no call for the removal: a LeaveGroup request, version 3 (KIP-345), made by hand.
"""

from __future__ import annotations

import socket
import struct

from confluent_kafka.admin import ConsumerGroupDescription  # type: ignore[attr-defined]

from tests.support.quiet_clients import admin_client

LEAVE_GROUP_API, LEAVE_GROUP_VERSION = 13, 3
TIMEOUT_S = 60


def partitions_by_instance(bootstrap: str, group_id: str) -> dict[str, int]:
    """How many partitions each member has, by its static name; while they are dealt out, none."""
    members = _described(bootstrap, group_id).members
    return {str(m.group_instance_id): len(m.assignment.topic_partitions) for m in members}


def remove_members(bootstrap: str, group_id: str) -> None:
    """Remove all that are members now."""
    group = _described(bootstrap, group_id)
    assert group.members, f"{group_id} has no members"
    request = struct.pack(">hhi", LEAVE_GROUP_API, LEAVE_GROUP_VERSION, 1) + _text("tests")
    request += _text(group_id) + struct.pack(">i", len(group.members))
    for member in group.members:
        request += _text(member.member_id) + _text(member.group_instance_id or "")
    address = (group.coordinator.host, group.coordinator.port)
    with socket.create_connection(address, TIMEOUT_S) as broker:
        broker.sendall(struct.pack(">i", len(request)) + request)
        answer = broker.makefile("rb").read(4 + 4 + 4 + 2)
    *_, error = struct.unpack(">iiih", answer)
    assert error == 0, f"the broker refused the request: error {error}"


def _described(bootstrap: str, group_id: str) -> ConsumerGroupDescription:
    admin = admin_client(bootstrap)  # kept until it has answered
    answers = admin.describe_consumer_groups([group_id])
    described: ConsumerGroupDescription = answers[group_id].result(TIMEOUT_S)
    return described


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
