"""The pages beside the API: the operator's, /metrics, /healthz, /readyz. No sockets here.

They are answered from snapshots alone, so a scrape never waits for the worker's loop.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from proxy.admin.access import is_bearer
from proxy.admin.exchange import Reply, as_json, as_text
from proxy.admin.page.page_files import page_file
from proxy.telemetry.status import CAUGHT_UP, Status

HEARTBEAT_LIMIT_S = 30.0
INDEX = """kafka-delay-proxy
/         the page for operators
/metrics  for Prometheus
/healthz  200 while the loop of every worker turns
/readyz   200 while every assigned shard has caught up and can be read
/api/v1/  pending records, look-ups, cancels, pauses, limits (/api/v1/openapi.json says how)
"""


class AdminPages:
    """What is answered to which path; no sockets here."""

    def __init__(
        self,
        registry: CollectorRegistry,
        read_statuses: Callable[[], Sequence[Status]],
        token: str | None = None,
        now_monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._read_statuses = read_statuses
        self._token = token
        self._now_monotonic = now_monotonic

    def answer(self, path: str, authorization: str) -> Reply:
        """Status code, content type and body. Probes are open, and so are the files of the
        page, which hold no data; the rest asks for the token."""
        if path == "/healthz":
            return self._health()
        if path == "/readyz":
            return self._readiness()
        if (file := page_file(path.partition("?")[0])) is not None:
            return file
        if not is_bearer(self._token, authorization):
            text = "This page needs the header `Authorization: Bearer <admin.token>`.\n"
            return as_text(401, text)
        if path == "/metrics":
            return Reply(200, CONTENT_TYPE_LATEST, generate_latest(self._registry))
        return as_text(404, f"There is no such page.\n{INDEX}")

    def _health(self) -> Reply:
        now = self._now_monotonic()
        silent_s = max(
            (now - status.heartbeat_monotonic for status in self._read_statuses()), default=None
        )
        if silent_s is None:
            return as_json(503, {"healthy": False, "reason": "no worker has started yet"})
        if silent_s >= HEARTBEAT_LIMIT_S:
            reason = f"a worker's loop has not turned for {silent_s:.0f} s"
            return as_json(503, {"healthy": False, "reason": reason})
        return as_json(200, {"healthy": True})

    def _readiness(self) -> Reply:
        statuses = self._read_statuses()
        if not statuses or not all(status.assigned for status in statuses):
            reason = "the consumer group has not assigned partitions yet"
            return as_json(503, {"ready": False, "reason": reason, "waiting": []})
        waiting = [
            {
                "topic": shard.topic,
                "partition": shard.partition,
                "state": shard.state,
                "behind": shard.behind,
                "watermark_ahead_ms": shard.ahead_ms,
                "unreadable_at": shard.unreadable_at,
                "unreadable_why": shard.unreadable_why,
            }
            for status in statuses
            for shard in status.shards
            if shard.state not in CAUGHT_UP
        ]
        if waiting:
            reason = _why_waiting(waiting)
            return as_json(503, {"ready": False, "reason": reason, "waiting": waiting})
        shards = sum(len(status.shards) for status in statuses)
        is_paused = any(status.is_ingest_paused for status in statuses)
        return as_json(200, {"ready": True, "shards": shards, "ingest_paused": is_paused})


def _why_waiting(waiting: Sequence[Mapping[str, Any]]) -> str:
    if any(shard["state"] == "unreadable" for shard in waiting):
        return "a partition of the ingress cannot be read on: see the runbook"
    return "shards are still catching up with their ingress partition"
