"""What happens to shards as the consumer group assigns partitions, revokes them, or loses them."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.recovery.recovery import Recovery
from proxy.worker.pipeline import Pipeline


class ShardOwner:
    """Brings shards into the pipeline and takes them out; called from within `Ingress.fetch`."""

    def __init__(self, recovery: Recovery, pipeline: Pipeline) -> None:
        self._recovery, self._pipeline = recovery, pipeline
        self.is_assigned = False
        """The group has answered, be it with no partition at all."""
        self.is_lost = False
        """The session has to end. After a broker was away its producer may be stuck
        (`proxy.publishing.publisher.ClientStuck`)."""

    def take_over(self, partitions: Sequence[int]) -> dict[int, int]:
        """Newly assigned: recover their shards; the offsets from which to read them on."""
        shards = self._recovery.take_over(partitions)
        self._pipeline.adopt(shards)
        self.is_assigned = True
        return {partition: shard.next_offset for partition, shard in shards.items()}

    def hand_over(self, partitions: Sequence[int]) -> None:
        """Another worker gets these: commit how far they were read, and write local state."""
        self._pipeline.hand_over(partitions)

    def lose(self, partitions: Sequence[int]) -> None:
        """These are gone: what is committed is true, nothing more may be committed."""
        self._pipeline.lose(partitions)
        self.is_lost = True
