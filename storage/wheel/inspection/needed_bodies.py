"""How long the files of bodies have to be for the rows of a log."""

from collections.abc import Mapping

from storage.wheel.log.body_files import BodyFiles, places_of
from storage.wheel.log.records import Rows, stretches


def needed_bytes(rows: Rows) -> dict[int, int]:
    """By file, for rows that pend. Raises StoreDamaged where one names a file that cannot be."""
    keys, positions = places_of(rows)
    order = keys.argsort(kind="stable")
    ends = (positions + rows["length"])[order]
    return {
        int(keys[order[start]]): int(ends[start : start + count].max())
        for start, count in stretches(keys[order])
    }


def too_short(bodies: BodyFiles, needed: Mapping[int, int]) -> list[str]:
    """The files that have less, as sentences."""
    return [
        f"{bodies.path(key)} has {bodies.size_bytes(key)} bytes, its records need {need_bytes}"
        for key, need_bytes in sorted(needed.items())
        if bodies.size_bytes(key) < need_bytes
    ]
