"""How often records have failed that are tried again in their place, and when. Pure."""

from collections.abc import Collection, Mapping

from proxy.client.place import Partition, Place
from proxy.client.retries.committing.offset_metadata import Attempt


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

    def behind(self, partition: Partition, offset: int) -> dict[int, Attempt]:
        """What waits from this offset on."""
        waiting = self._waiting.get(partition, {})
        return {at: attempt for at, attempt in waiting.items() if at >= offset}

    def restore(self, partition: Partition, waiting: dict[int, Attempt]) -> None:
        """Go on from what was committed."""
        self._waiting[partition] = waiting

    def saved(self, ends: Mapping[Partition, int]) -> None:
        """All of it is committed, and each partition up to its end."""
        self.unsaved.clear()
        for partition, end in ends.items():
            if partition in self._waiting:
                self._waiting[partition] = self.behind(partition, end)

    def drop(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that went to another consumer."""
        for partition in partitions:
            self._waiting.pop(partition, None)
        self.unsaved.difference_update(partitions)

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self.unsaved.clear()
