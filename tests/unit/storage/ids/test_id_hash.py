"""The hash of ids is even, portable, and gives attackers no collisions."""

from __future__ import annotations

import numpy as np
import pytest

from storage.ids.layout import IdHash, Words, padded

KNOWN_HASHES = ["0000000000000000", "7fb042443d40caca", "7923b9b0e60eb5a8", "6d035ca0c4c15e19"]
MODULUS = 1 << 64
SALT, STEP, MIX = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4E, 0xBF58476D1CE4E5B9


def unkeyed(word: int, place: int) -> int:
    """Return version 0.1.0's hash of a word before the sum. It had no key."""
    mixed = word * (SALT + place * STEP) % MODULUS
    mixed = (mixed ^ mixed >> 32) * MIX % MODULUS
    return mixed ^ mixed >> 29


def unmixed(mixed: int, place: int) -> int:
    mixed ^= (mixed >> 29) ^ (mixed >> 58)
    mixed = mixed * pow(MIX, -1, MODULUS) % MODULUS
    mixed ^= mixed >> 32
    return mixed * pow(SALT + place * STEP, -1, MODULUS) % MODULUS


def colliding(count: int) -> list[bytes]:
    """Return ids with one hash if there is no key: the second word compensates the first."""
    firsts = range(1, count + 1)
    seconds = [unmixed((7 - unkeyed(first, 0)) % MODULUS, 1) for first in firsts]
    pairs = zip(firsts, seconds, strict=True)
    return [a.to_bytes(8, "little") + b.to_bytes(8, "little") for a, b in pairs]


def test_ids_chosen_to_collide_in_a_hash_without_a_key_do_not() -> None:
    ids = colliding(20_000)
    sums = {
        (unkeyed(int.from_bytes(i[:8], "little"), 0) + unkeyed(int.from_bytes(i[8:], "little"), 1))
        % MODULUS
        for i in ids
    }
    assert sums == {7}
    hashes = IdHash(b"secret")(padded(ids))
    assert np.unique(hashes).size == len(ids)


@pytest.mark.parametrize("ids", [[b"order-1"], [b"", b"order-1", b"x" * 100]])
def test_another_seed_gives_other_hashes(ids: list[bytes]) -> None:
    one, other = IdHash(b"one")(padded(ids)), IdHash(b"other")(padded(ids))
    filled = [bool(ident) for ident in ids]
    assert (one != other).tolist() == filled


def test_the_hash_spreads_ids_that_differ_in_a_digit() -> None:
    patterns = [b"%d", b"order-%08d", b"%032x", b"customer/%d/eu-west", b"%d\0\0\0"]
    hash_of = IdHash(b"a seed")
    hashes = np.concatenate([hash_of(padded([p % n for n in range(100_000)])) for p in patterns])
    assert np.unique(hashes).size == hashes.size
    counts = np.bincount((hashes >> np.uint64(54)).astype(np.int64), minlength=1024)
    assert abs(counts - counts.mean()).max() < 8 * counts.mean() ** 0.5


def test_a_hash_is_the_same_in_every_process_and_version() -> None:
    ids = [b"", b"order-1", b"0123456789abcdef", b"x" * 100]
    hashes: Words = IdHash(b"a seed")(padded(ids))
    assert [f"{value:016x}" for value in hashes.tolist()] == KNOWN_HASHES
