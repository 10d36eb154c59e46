"""The hash by which ids are sorted: keyed, so that nobody can choose ids that collide."""

from hashlib import shake_256

import numpy as np

from storage.ids.runs.idents import Idents, Words, words_of

HASH_NAME = "multilinear-1"
"""Goes into the manifest: runs sorted by another hash cannot be read."""
KEY_BYTES = 8
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_LAST = np.uint64(0x94D049BB133111EB)


class IdHash:
    """A 64-bit hash of each id under a seed, spread evenly in its highest bits.

    Multilinear: a key of the seed for each half of a word and for the size, products added up
    modulo 2^64. For ids chosen without the seed each pair collides with a chance of 2^-32 at most
    (Lemire and Kaser, Strongly universal string hashing is fast). The sum is mixed by SplitMix64's
    finaliser, which keeps different ones apart."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._keys = self._made(8)

    def __call__(self, idents: Idents) -> Words:
        """Equal ids have equal hashes, in every process and batch."""
        words, starts, sizes = idents
        if not starts.size:
            return np.zeros(0, np.uint64)
        counts = words_of(sizes)
        keys = self._keys_for(int(counts.max()))
        lows, highs = words & _LOW, words >> _HALF
        width = words.size // starts.size
        if (counts == width).all():
            shape = (starts.size, width)
            products = lows.reshape(shape) * keys[1 : 2 * width : 2]
            products += highs.reshape(shape) * keys[2 : 2 * width + 1 : 2]
            sums: Words = products.sum(axis=1, dtype=np.uint64)
        else:
            first = 1 + 2 * (np.arange(words.size) - np.repeat(starts, counts))
            sums = np.add.reduceat(lows * keys[first] + highs * keys[first + 1], starts)
        sums += sizes.astype(np.uint64) * keys[0]
        return _mixed(sums)

    def _keys_for(self, words: int) -> Words:
        needed = 1 + 2 * words
        if self._keys.size < needed:
            self._keys = self._made(2 * needed)
        return self._keys

    def _made(self, count: int) -> Words:
        """Longer ones begin with the shorter."""
        return np.frombuffer(shake_256(self._seed).digest(KEY_BYTES * count), "<u8")


def _mixed(sums: Words) -> Words:
    sums ^= sums >> np.uint64(30)
    sums *= _MIX
    sums ^= sums >> np.uint64(27)
    sums *= _LAST
    sums ^= sums >> np.uint64(31)
    return sums
