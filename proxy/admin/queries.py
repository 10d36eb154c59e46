"""What the admin API asks of the workers, and how a worker answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from proxy.records.body import Headers
from proxy.scheduling.record_lookup import Found, find_id, find_record
from proxy.scheduling.shard import Shard


class PendingByTime(NamedTuple):
    """About how many records pend, between these epoch ms: a list of counts."""

    edges_ms: tuple[int, ...]


class FindId(NamedTuple):
    """What waits with this id, in any partition of the worker: a list of `Found`."""

    ident: bytes


class FindRecord(NamedTuple):
    """What has become of this ingress record: a list of one `Found`, or of none if the partition
    is another worker's. Serves as `proxy.records.message.Message`."""

    at: tuple[int, int]
    content: tuple[bytes | None, bytes | None, Headers | None]
    stamp: tuple[int, int]

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def key(self) -> bytes | None:
        return self.content[0]

    def value(self) -> bytes | None:
        return self.content[1]

    def headers(self) -> Headers | None:
        return self.content[2]

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def error(self) -> None: ...


Query: TypeAlias = PendingByTime | FindId | FindRecord
Answer: TypeAlias = list[int] | list[Found]


def answer(query: Query, shards: Mapping[int, Shard]) -> Answer:
    """The answer of a worker with these shards; a matter of milliseconds."""
    match query:
        case PendingByTime(edges_ms):
            sums = [0] * (len(edges_ms) + 1)
            for shard in shards.values():
                counts = shard.pending_by_time(edges_ms)
                sums = [total + count for total, count in zip(sums, counts, strict=True)]
            return sums
        case FindId(ident):
            found = (find_id(shard, ident) for shard in shards.values())
            return [one for one in found if one is not None]
        case FindRecord():
            shard_of = shards.get(query.partition())
            return [] if shard_of is None else [find_record(shard_of, query)]
