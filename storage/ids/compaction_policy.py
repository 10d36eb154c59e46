"""Which runs to merge."""

from collections.abc import Sequence


def runs_to_merge(sizes: Sequence[int], least: int, most: int) -> int:
    """How many of the newest runs, given the sizes of all, oldest first, should become one.

    At least `least`, and as many as possible of which the oldest is no larger than all newer
    ones together: rows that newer ones hide then take no more room than the others. With
    `least` 8, of 30 memtables a row is copied once, of 1,000 four times, and there are 5 or 7 runs.
    `most` runs are too many whatever their sizes. 0: leave them."""
    best, newer = 0, 0
    for count, size in enumerate(reversed(sizes), 1):
        if count >= least and size <= newer:
            best = count
        newer += size
    return least if len(sizes) >= most and not best else best


def is_mostly_useless(useless: Sequence[int], sizes: Sequence[int], least: int) -> bool:
    """Whether so many rows may be forgotten that all runs are worth being copied without them."""
    return sum(useless) > max(least, sum(sizes) // 2)
