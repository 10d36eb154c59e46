"""Removal of group members from outside, as Java's admin client does it.

librdkafka's admin client has no such call. This module writes the LeaveGroup request, version 3
(KIP-345), itself.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from confluent_kafka import ConsumerGroupState

from tests.support.quiet_clients import admin_client

LEAVE_GROUP_API, LEAVE_GROUP_VERSION = 13, 3
TIMEOUT_S = 60


def is_settled(bootstrap: str, group_id: str, members: int) -> bool:
    group = _described(bootstrap, group_id)
    return bool(group.state == ConsumerGroupState.STABLE) and len(group.members) == members


def is_left_by_all(bootstrap: str, group_id: str) -> bool:
    return not _described(bootstrap, group_id).members


def remove_members(bootstrap: str, group_id: str) -> None:
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


def _described(bootstrap: str, group_id: str) -> Any:
    admin = admin_client(bootstrap)  # the removal needs it until it has answered
    return admin.describe_consumer_groups([group_id])[group_id].result(TIMEOUT_S)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
