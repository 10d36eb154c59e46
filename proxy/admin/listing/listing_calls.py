"""The call that lists what waits."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from proxy.admin.exchange import Reply, Request, as_json
from proxy.admin.listing.filters import (
    FILTERS,
    RECORDS,
    cursor_of,
    limit_of,
    place_of,
    sought_by,
)
from proxy.admin.listing.page_reader import PageReader
from proxy.admin.workers import Workers
from proxy.clock import wall_clock_ms
from proxy.scheduling.pending import WaitingRecord
from proxy.telemetry.status import Status, partitions_of


class ListingCalls:
    """Raises Problem, NoAnswer and MailboxFull."""

    def __init__(self, read_statuses: Callable[[], Sequence[Status]], workers: Workers) -> None:
        self._read_statuses, self._workers = read_statuses, workers

    def pending_records(self, request: Request) -> Reply:
        """One page of the records that wait, in the order in which they fire."""
        query = request.query(*FILTERS, "limit", "cursor")
        sought, limit = sought_by(query), limit_of(query.get("limit", RECORDS))
        place = place_of(query.get("cursor"), sought)
        statuses = self._read_statuses()
        page = PageReader(self._workers.ask, sought, partitions_of(statuses), place).read(limit)
        paused = {pattern for status in statuses for pattern in status.paused}
        now_ms = wall_clock_ms()
        reasons = {
            one.target: f"{one.reason}: {one.detail}"
            for status in statuses
            for one in status.refused
        }
        reply = {
            "records": [_shown(record, paused, reasons, now_ms) for record in page.records],
            "cursor": None if page.next is None else cursor_of(page.next),
            "partitions": page.partitions,
        }
        return as_json(200, reply)


def _shown(
    record: WaitingRecord, paused: set[str], reasons: Mapping[str, str], now_ms: int
) -> Mapping[str, Any]:
    ident = None if record.ident is None else record.ident.decode("utf-8", "backslashreplace")
    return {
        "origin": record.origin,
        "id": ident,
        "due": record.due_ms,
        "fires": None if record.why == "undecided" else record.fires_ms,
        "target": record.target,
        "bytes": record.size_bytes,
        "why": _why(record, paused, now_ms),
        "attempt": record.attempt,
        "reason": reasons.get(record.target) if record.why == "requeued" else None,
    }


def _why(record: WaitingRecord, paused: set[str], now_ms: int) -> str:
    """The reason as it is at this moment."""
    if record.why == "scheduled" and record.fires_ms <= now_ms:
        return "overdue"
    is_paused = any(fnmatchcase(record.target, pattern) for pattern in paused)
    return "paused" if record.why == "held-back" and is_paused else record.why
