"""Tells quickly which hashes have certainly not been met: a Bloom filter with two bits a hash."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from storage.ids.idents import Column, Words

_BITS = np.left_shift(1, np.arange(8)).astype(np.uint8)
Bits = npt.NDArray[np.uint8]


def filter_power(ids: int, bits_per_id: int) -> int:
    """A filter for so many ids has two to this many bits, at least one byte."""
    return max(3, (max(1, ids) * bits_per_id - 1).bit_length())


class HashFilter:
    """Two to `power` bits, eight in each byte of `bits`. A hash sets the one that its highest bits
    name, and the one that its lowest bits name."""

    def __init__(self, bits: Bits, power: int) -> None:
        self.bits = bits
        self._shift = np.uint64(64 - power)
        self._mask = np.uint64((1 << power) - 1)

    @classmethod
    def empty(cls, power: int) -> HashFilter:
        """One that no hash passes."""
        return cls(np.zeros((1 << power) // 8, np.uint8), power)

    def add(self, hashes: Words) -> None:
        """Let these pass from now on."""
        for places in self._places(hashes):
            np.bitwise_or.at(self.bits, places >> 3, _BITS.take(places & 7))

    def passing(self, hashes: Words) -> Column:
        """Indices of the hashes that may have been added."""
        high, low = self._places(hashes)
        passing = np.flatnonzero(self.bits.take(high >> 3) & _BITS.take(high & 7))
        if passing.size:
            left = low[passing]
            passing = passing[(self.bits.take(left >> 3) & _BITS.take(left & 7)) != 0]
        return passing

    def _places(self, hashes: Words) -> tuple[Column, Column]:
        return (hashes >> self._shift).view(np.int64), (hashes & self._mask).view(np.int64)
