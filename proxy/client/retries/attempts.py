"""How often records have failed that are tried again in their place, and when they are due.

It is committed as the metadata of their partition's offset: so whoever gets the partition next
goes on counting, after a rebalance and after a crash. Pure.
"""

import logging
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from proxy.client.place import Partition, Place

FORMAT: Final = re.compile(
    r"orderly-1 (?P<first_due_s>\d{1,15})(?P<failed>(?: \d{1,18}:\d{1,9}:\d{1,15})*)", re.ASCII
)
"""When the first is due, then each record: offset, from that of the commit on; failures; and how
many seconds after the first it is due.
"""
MOST_CHARACTERS: Final = 4_000
"""Of a partition's metadata: brokers take 4,096 (offset.metadata.max.bytes)."""

log = logging.getLogger("proxy.client")


class Attempt(NamedTuple):
    """A record has failed so many times; the next attempt is due at `due_ms` (epoch)."""

    failures: int
    due_ms: int


class Attempts:
    """Of each partition the records that wait for their next attempt, by offset."""

    def __init__(self) -> None:
        self._waiting: dict[Partition, dict[int, Attempt]] = {}
        self.unsaved: set[Partition] = set()
        """Partitions with failures since the last commit."""

    def note(self, place: Place, attempt: Attempt) -> None:
        """The record there has failed, once more maybe."""
        self._waiting.setdefault(place.topic_partition, {})[place.offset] = attempt
        self.unsaved.add(place.topic_partition)

    def of(self, place: Place) -> Attempt | None:
        """None: the record there has not failed."""
        return self._waiting.get(place.topic_partition, {}).get(place.offset)

    def done(self, place: Place) -> None:
        """The record there does not wait any more."""
        self._waiting.get(place.topic_partition, {}).pop(place.offset, None)

    def metadata(self, partition: Partition, offset: int) -> str | None:
        """What to commit beside this offset; None when no record behind it waits.

        With more than some 200 records that wait, those that have failed least are left out:
        after a crash they begin to count again.
        """
        waiting = self._waiting.get(partition, {})
        behind = {at: attempt for at, attempt in waiting.items() if at >= offset}
        if not behind:
            return None
        first_due_s = -(-min(attempt.due_ms for attempt in behind.values()) // 1000)
        text = f"orderly-1 {first_due_s}"
        for at, (failures, due_ms) in sorted(behind.items(), key=_most_failures_first):
            entry = f" {at - offset}:{failures}:{-(-due_ms // 1000) - first_due_s}"
            if len(text) + len(entry) > MOST_CHARACTERS:
                break
            text += entry
        return text

    def restore(self, partition: Partition, offset: int, metadata: str | None) -> None:
        """Go on from what was committed. What somebody else has put there is left alone."""
        self._waiting.pop(partition, None)
        if not metadata:
            return
        if found := FORMAT.fullmatch(metadata):
            self._waiting[partition] = _read(found, offset)
        else:
            log.warning("%s: the metadata of its offset is not ours: %.100r", partition, metadata)

    def saved(self, ends: Mapping[Partition, int]) -> None:
        """All of it is committed, and each partition up to its end."""
        self.unsaved.clear()
        for partition, end in ends.items():
            waiting = self._waiting.get(partition, {})
            for offset in [offset for offset in waiting if offset < end]:
                del waiting[offset]

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that went to another consumer."""
        for partition in partitions:
            self._waiting.pop(partition, None)
        self.unsaved.difference_update(partitions)

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self.unsaved.clear()


def _most_failures_first(entry: tuple[int, Attempt]) -> tuple[int, int]:
    offset, attempt = entry
    return -attempt.failures, offset


def _read(found: re.Match[str], offset: int) -> dict[int, Attempt]:
    first_due_s = int(found["first_due_s"])
    records = (map(int, record.split(":")) for record in found["failed"].split())
    return {
        offset + distance: Attempt(failures, (first_due_s + later_s) * 1000)
        for distance, failures, later_s in records
    }
