"""How large a record is on the broker (KIP-98, record format 2)."""

from __future__ import annotations

from typing import Final

from proxy.records.body import Headers

RECORD_BATCH_BYTES: Final = 61
"""A record batch without its records."""
IN_COMPANY_BYTES: Final = 10
"""What a record may take more behind others: larger deltas of offset and time."""


def record_batch_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Size of the record batch that holds this record alone, uncompressed."""
    size_bytes = 3 + _sized(key) + _sized(value) + _varint_bytes(len(headers))
    size_bytes += sum(_sized(name.encode()) + _sized(content) for name, content in headers)
    return RECORD_BATCH_BYTES + _varint_bytes(size_bytes) + size_bytes


def _sized(content: bytes | None) -> int:
    return 1 if content is None else _varint_bytes(len(content)) + len(content)


def _varint_bytes(number: int) -> int:
    """Length of a zigzag varint: 6 bits of the number in the first byte, 7 in the others."""
    return (number.bit_length() + 7) // 7
