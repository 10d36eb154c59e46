"""Handmade produce request for records that client libraries refuse. librdkafka's Python binding
and Java's producer take header names as text. The broker takes any bytes. Formats: KIP-98 (record
batch v2) and the Produce request, version 7."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

Header = tuple[bytes, bytes | None]

PRODUCE_API, PRODUCE_VERSION = 0, 7
TIMEOUT_S = 180
CASTAGNOLI = 0x82F63B78
NOT_UTF_8 = b"timer-\xff\xfe"
"""Header name that the broker accepts and the client library cannot show."""


def produce_raw(bootstrap: str, topic: str, value: bytes, headers: Sequence[Header]) -> None:
    """Write one record without a key to partition 0. Fail with the broker's error code."""
    host, _, port = bootstrap.rpartition(":")
    request = _request(topic, _batch(_record(value, headers)))
    with socket.create_connection((host, int(port)), TIMEOUT_S) as broker:
        broker.sendall(_sized(request))
        answer = _receive(broker, struct.unpack(">i", _receive(broker, 4))[0])
    error_at = 4 + 4 + 2 + len(topic) + 4 + 4
    (error,) = struct.unpack_from(">h", answer, error_at)
    assert error == 0, f"the broker refused the record: error {error}"


def _receive(broker: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        part = broker.recv(size_bytes - len(received))
        assert part, "the broker hung up: it did not understand the request"
        received += part
    return received


def _request(topic: str, batch: bytes) -> bytes:
    """Return header, no transaction, acks all, timeout, one topic, one partition and its batch."""
    header = struct.pack(">hhi", PRODUCE_API, PRODUCE_VERSION, 1) + _text("raw")
    what = struct.pack(">hhi", -1, -1, TIMEOUT_S * 1000)
    place = struct.pack(">i", 1) + _text(topic) + struct.pack(">ii", 1, 0)
    return header + what + place + _sized(batch)


def _batch(record: bytes) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    counted = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    checked = struct.pack(">ibI", -1, 2, _crc32c(counted)) + counted
    return struct.pack(">qi", 0, len(checked)) + checked


def _record(value: bytes, headers: Sequence[Header]) -> bytes:
    """Return attributes, timestamp and offset deltas 0, no key, the value and the headers."""
    body = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _bytes(value) + _varint(len(headers))
    for name, content in headers:
        body += _bytes(name) + (_varint(-1) if content is None else _bytes(content))
    return _varint(len(body)) + body


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _sized(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _bytes(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(encoded) + bytes([zigzag])


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
