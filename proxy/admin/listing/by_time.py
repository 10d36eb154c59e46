"""About how many records wait until when, and what of that is no simple wait."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fnmatch import translate
from typing import NamedTuple, cast

from proxy.admin.listing.each_waiting import EachWaiting
from proxy.admin.listing.filters import pattern_of
from proxy.admin.query_mailbox import CountedShard, PendingByTime
from proxy.admin.workers import Workers
from proxy.scheduling.pending import Sought
from proxy.telemetry.status import Status, partitions_of
from storage.store import added


class WaitingByTime(NamedTuple):
    """counts: of records that fire up to each edge from the one before it, and after the last.

    Among these are so many that were `cancelled` or replaced, until their time, and so many that
    are `held`: their targets are paused, so that they wait until these are resumed, wherever they
    stand.
    """

    counts: list[int]
    cancelled: int
    held: int


def waiting_by_time(
    workers: Workers, statuses: Sequence[Status], edges_ms: Sequence[int]
) -> WaitingByTime:
    """About as it is now. Raises NoAnswer, MailboxFull."""
    shards = [shard for status in statuses for shard in status.shards]
    counted = _counted(workers, tuple(edges_ms), partitions_of(statuses))
    columns = zip([0] * (len(edges_ms) + 1), *counted, strict=True)
    return WaitingByTime(
        [sum(column) for column in columns],
        sum(shard.cancelled for shard in shards),
        _held(statuses),
    )


class DuesByTime(NamedTuple):
    """counts: of records due up to each edge from the one before it, and after the last; so many of
    them are `held` by a pause. is_all: whether all that wait were looked at."""

    counts: list[int]
    held: int
    is_all: bool


def dues_by_time(
    workers: Workers, statuses: Sequence[Status], targets: str, edges_ms: Sequence[int]
) -> DuesByTime:
    """Of those for a pattern of targets, which are looked at one by one: exact, and as far as there
    is time. Raises Problem, NoAnswer, MailboxFull."""
    each = EachWaiting(workers.ask, Sought(pattern_of(targets)), partitions_of(statuses))
    counts, held = [0] * (len(edges_ms) + 1), 0
    for record in each:
        if record.why != "undecided":
            counts[bisect_left(edges_ms, record.due_ms)] += 1
            held += record.why == "paused"
    return DuesByTime(counts, held, each.is_all)


def _counted(
    workers: Workers, edges_ms: tuple[int, ...], partitions: Sequence[int]
) -> Iterator[list[int]]:
    """The counts of each partition: some are asked for at a time, so that no loop is held up for
    long. Those that no worker serves any more are left out."""
    left = set(partitions)
    while left:
        answers = workers.ask(PendingByTime(edges_ms, tuple(sorted(left))))
        pieces = [cast(CountedShard, piece) for answer in answers for piece in answer]
        yield from (piece.counts for piece in pieces)
        if not pieces:
            return
        left -= {piece.partition for piece in pieces}


def _held(statuses: Sequence[Status]) -> int:
    """Of targets that are counted by name."""
    patterns = {pattern for status in statuses for pattern in status.paused}
    if not patterns:
        return 0
    is_paused = re.compile("|".join(map(translate, sorted(patterns)))).match
    counts = added([status.pending_by_target for status in statuses]).by_name
    return sum(count for target, count in counts.items() if is_paused(target))
