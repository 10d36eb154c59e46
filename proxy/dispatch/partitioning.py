"""To which partition a key belongs, as the client library and Java producers reckon it.

Only needed where a partition of the target is unavailable: else the client library does it.
"""

from typing import Final

ANY: Final = -1
"""A partition that nobody has named: it goes by the key."""
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a topic with so many to which records with this key go."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """The hash of org.apache.kafka.common.utils.Utils.murmur2, as 32 bits without a sign."""
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
