"""The partition of a key, as the client library and Java producers compute it."""

from typing import Final

ANY: Final = -1
"""No partition is named: the key decides."""
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition for records with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """Return the unsigned 32-bit hash of org.apache.kafka.common.utils.Utils.murmur2."""
    size = len(key)
    code = _SEED ^ size
    whole = size & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _FACTOR & _WORD
        word = (word ^ word >> 24) * _FACTOR & _WORD
        code = code * _FACTOR & _WORD ^ word
    if whole < size:
        code = (code ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _WORD
    code = (code ^ code >> 13) * _FACTOR & _WORD
    return code ^ code >> 15
