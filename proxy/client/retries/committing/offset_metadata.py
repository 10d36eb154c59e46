"""What is committed beside a partition's offset: failures of what waits, what is done behind it.

So whoever gets the partition next goes on from there, after a rebalance and after a crash. It holds
in one cluster and at one offset: tools copy metadata to other clusters (MirrorMaker does), where
it would have records skipped that nobody has handled. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from proxy.client.retries.committing.progress import Range

FORMAT: Final = re.compile(
    r"retry-1 (?P<cluster>\S+) (?P<offset>\d{1,18})"
    r"(?:;failed (?P<first_due_s>\d{1,15})(?P<failed>(?: \d{1,18}:\d{1,9}:\d{1,15})+))?"
    r"(?:;done(?P<done>(?: [1-9]\d{0,17} [1-9]\d{0,17})+))?",
    re.ASCII,
)
"""`failed`: when the first is due, then each record: distance from the offset; failures; and how
many seconds after the first it is due. `done`: from the offset on, in turns, how many offsets are
not done and how many are; behind the last nothing is.
"""
MOST_CHARACTERS: Final = 4_000
"""Brokers take 4,096 (offset.metadata.max.bytes)."""
SHARE_OF_FAILED: Final = 0.75


class Attempt(NamedTuple):
    """A record has failed so many times; the next attempt is due at `due_ms` (epoch)."""

    failures: int
    due_ms: int


class Remembered(NamedTuple):
    """What metadata says: which records wait, and which behind the offset are done."""

    waiting: dict[int, Attempt]
    done: list[Range]


class Written(NamedTuple):
    """Metadata to be committed; None without a need. `has_all_done`: all that is done fits in."""

    text: str | None
    has_all_done: bool


def written(
    cluster: str,
    offset: int,
    remembered: Remembered,
    most_characters: int = MOST_CHARACTERS,
) -> Written:
    """What to commit beside this offset, no longer than that.

    What does not fit is left out: of the failures (three quarters of the room, some 200 records)
    the fewest, of what is done the last.
    """
    head = f"retry-1 {cluster} {offset}"
    room = most_characters - len(head)
    failed = _failed(offset, remembered.waiting, int(room * SHARE_OF_FAILED))
    done, has_all_done = _done(offset, remembered.done, room - len(failed))
    return Written(head + failed + done if failed or done else None, has_all_done)


def read(cluster: str, offset: int, metadata: str | None) -> Remembered | None:
    """None when it is not ours, or not of this cluster and offset."""
    found = FORMAT.fullmatch(metadata or "")
    if not found or found["cluster"] != cluster or int(found["offset"]) != offset:
        return None
    return Remembered(_waiting(found, offset), list(_ranges(found, offset)))


def _failed(offset: int, waiting: Mapping[int, Attempt], most_characters: int) -> str:
    if not waiting:
        return ""
    first_due_s = -(-min(attempt.due_ms for attempt in waiting.values()) // 1000)
    head = text = f";failed {first_due_s}"
    for at, (failures, due_ms) in sorted(waiting.items(), key=_most_failures_first):
        entry = f" {at - offset}:{failures}:{-(-due_ms // 1000) - first_due_s}"
        if len(text) + len(entry) > most_characters:
            break
        text += entry
    return text if text != head else ""


def _done(offset: int, ranges: Iterable[Range], most_characters: int) -> tuple[str, bool]:
    head = text = ";done"
    for start, end in ranges:
        entry = f" {start - offset} {end - start}"
        if len(text) + len(entry) > most_characters:
            return text if text != head else "", False
        text, offset = text + entry, end
    return text if text != head else "", True


def _most_failures_first(entry: tuple[int, Attempt]) -> tuple[int, int]:
    offset, attempt = entry
    return -attempt.failures, offset


def _waiting(found: re.Match[str], offset: int) -> dict[int, Attempt]:
    if not found["failed"]:
        return {}
    first_due_s = int(found["first_due_s"])
    records = (map(int, record.split(":")) for record in found["failed"].split())
    return {
        offset + distance: Attempt(failures, (first_due_s + later_s) * 1000)
        for distance, failures, later_s in records
    }


def _ranges(found: re.Match[str], offset: int) -> list[Range]:
    ranges = []
    lengths = map(int, (found["done"] or "").split())
    for undone, done in zip(lengths, lengths, strict=True):
        start = offset + undone
        offset = start + done
        ranges.append((start, offset))
    return ranges
