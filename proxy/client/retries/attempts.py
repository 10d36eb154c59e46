"""How often records have failed that are tried again in their place, and when they are due.

It is committed as the metadata of their partition's offset: so whoever gets the partition next
goes on counting, after a rebalance and after a crash. Pure.
"""

import json
import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from proxy.client.place import Partition, Place

FORMAT: Final = 1
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
        written: list[list[int]] = []
        left = MOST_CHARACTERS - len(_text(first_due_s, []))
        for at, (failures, due_ms) in sorted(behind.items(), key=_most_failures_first):
            entry = [at - offset, failures, max(0, -(-due_ms // 1000) - first_due_s)]
            left -= len(json.dumps(entry, separators=(",", ":"))) + 1
            if left < 0:
                break
            written.append(entry)
        return _text(first_due_s, written)

    def restore(self, partition: Partition, offset: int, metadata: str | None) -> None:
        """Go on from what was committed. What somebody else has put there is left alone."""
        self._waiting.pop(partition, None)
        if not metadata:
            return
        try:
            self._waiting[partition] = _read(metadata, offset)
        except (ValueError, TypeError, KeyError):
            log.warning(
                "%s: the metadata of offset %d is not ours: %.100r", partition, offset, metadata
            )

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


def _text(first_due_s: int, written: list[list[int]]) -> str:
    content = {"orderly": FORMAT, "due": first_due_s, "failed": written}
    return json.dumps(content, separators=(",", ":"))


def _read(metadata: str, offset: int) -> dict[int, Attempt]:
    content = json.loads(metadata)
    if content["orderly"] != FORMAT:
        raise ValueError(content["orderly"])
    due_s = int(content["due"])
    return {
        offset + int(distance): Attempt(int(failures), (due_s + int(later_s)) * 1000)
        for distance, failures, later_s in content["failed"]
    }
