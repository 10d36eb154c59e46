"""Client quotas of a broker, set by a handmade request. confluent-kafka's AdminClient cannot set
them. Format: AlterClientQuotas, version 0 (KIP-546)."""

from __future__ import annotations

import socket
import struct

ALTER_CLIENT_QUOTAS, VERSION = 49, 0
TIMEOUT_S = 180


def set_quota(bootstrap: str, client_id: str, name: str, value: float) -> None:
    """Limit all clients with this id. Fail with the broker's error code."""
    host, _, port = bootstrap.rpartition(":")
    header = struct.pack(">hhi", ALTER_CLIENT_QUOTAS, VERSION, 1) + _text("quotas")
    entity = struct.pack(">i", 1) + _text("client-id") + _text(client_id)
    change = struct.pack(">i", 1) + _text(name) + struct.pack(">d?", value, False)
    request = header + struct.pack(">i", 1) + entity + change + struct.pack(">?", False)
    with socket.create_connection((host, int(port)), TIMEOUT_S) as broker:
        broker.sendall(struct.pack(">i", len(request)) + request)
        answer = broker.makefile("rb")
        content = answer.read(struct.unpack(">i", answer.read(4))[0])
    error_at = 4 + 4 + 4  # after correlation id, throttle time and count of entries
    (error,) = struct.unpack_from(">h", content, error_at)
    assert error == 0, f"the broker refused the quota: error {error}"


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
