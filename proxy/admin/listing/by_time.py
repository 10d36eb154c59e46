"""About how many records wait until when, and what of that is no simple wait."""

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import NamedTuple, cast

from proxy.admin.query_mailbox import PendingByTime
from proxy.admin.workers import Workers
from proxy.telemetry.status import Status
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
    answers = workers.ask(PendingByTime(tuple(edges_ms)))
    sums = [sum(cast(tuple[int, ...], counts)) for counts in zip(*answers, strict=True)]
    shards = [shard for status in statuses for shard in status.shards]
    return WaitingByTime(
        sums or [0] * (len(edges_ms) + 1), sum(shard.cancelled for shard in shards), _held(statuses)
    )


def _held(statuses: Sequence[Status]) -> int:
    """Of targets that are counted by name."""
    patterns = {pattern for status in statuses for pattern in status.paused}
    if not patterns:
        return 0
    is_paused = re.compile("|".join(map(translate, sorted(patterns)))).match
    counts = added([status.pending_by_target for status in statuses]).by_name
    return sum(count for target, count in counts.items() if is_paused(target))
