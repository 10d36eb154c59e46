"""Tells quickly which hashes have certainly not been met: a Bloom filter with four bits a hash, all
in one word, so that to ask for a hash is to read one word."""

from __future__ import annotations

from typing import Final

import numpy as np

from storage.ids.runs.idents import Words
from storage.store import Column

WORD_BITS: Final = 64
WORD_POWER: Final = 6
_ONE, _PLACE = np.uint64(1), np.uint64(WORD_BITS - 1)
_LATER = tuple(np.uint64(number * WORD_POWER) for number in (1, 2, 3))


def filter_power(ids: int, bits_per_id: int) -> int:
    """A filter for so many ids has two to this many bits, at least two words."""
    return max(WORD_POWER + 1, (max(1, ids) * bits_per_id - 1).bit_length())


def bits_of(hashes: Words) -> Words:
    """The bits that each hash sets in its word: those that its lowest bits name."""
    bits = _ONE << (hashes & _PLACE)
    for shift in _LATER:
        bits |= _ONE << ((hashes >> shift) & _PLACE)
    return bits


class BloomFilter:
    """`words` of two to `power` bits in all. The highest bits of a hash name its word."""

    def __init__(self, words: Words, power: int) -> None:
        self.words = words
        self._shift = np.uint64(64 + WORD_POWER - power)

    @classmethod
    def empty(cls, power: int) -> BloomFilter:
        """One that no hash passes."""
        return cls(np.zeros((1 << power) // WORD_BITS, np.uint64), power)

    def add(self, hashes: Words) -> None:
        """Let these pass from now on."""
        if hashes.size:
            ordered = np.sort(hashes)
            places = self._places(ordered)
            is_first = np.empty(places.size, np.bool_)
            is_first[0] = True
            np.not_equal(places[1:], places[:-1], out=is_first[1:])
            firsts = np.flatnonzero(is_first)
            self.words[places[firsts]] |= np.bitwise_or.reduceat(bits_of(ordered), firsts)

    def passing(self, hashes: Words, bits: Words) -> Column:
        """Indices of the hashes, whose bits are given, that may have been added."""
        return np.flatnonzero((self.words.take(self._places(hashes)) & bits) == bits)

    def _places(self, hashes: Words) -> Column:
        return (hashes >> self._shift).view(np.int64)
