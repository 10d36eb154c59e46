"""The operator's page, /healthz and /readyz. They never wait for a worker's loop."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from proxy.telemetry.status import CAUGHT_UP, Status

HEARTBEAT_LIMIT_S = 30.0
INDEX = """kafka-delay-proxy
/         the page for operators
/metrics  for Prometheus
/healthz  200 while the loop of every worker turns
/readyz   200 while every assigned shard has caught up and can be read
/api/v1/  pending records, look-ups, cancels, pauses, limits (reference: /api/v1/openapi.json)
"""
FOLDER: Final = Path(__file__).with_name("page")
PREFIX: Final = "/page/"
MOST_WHY: Final = 300
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
FILE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

JsonReply = tuple[int, Mapping[str, Any]]


def page_address(host: str, port: int, scheme: str = "http") -> str:
    """Return the address of the page for browsers on this machine."""
    named = "localhost" if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
    return f"{scheme}://{named}:{port}/"


def page_file(path: str) -> tuple[str, bytes] | None:
    """Return type and content of a file of the page, or None. These files need no token, because
    they hold no data."""
    if path == "/":
        return _files().get("index.html")
    return _files().get(path.removeprefix(PREFIX)) if path.startswith(PREFIX) else None


@cache
def _files() -> dict[str, tuple[str, bytes]]:
    return {
        file.name: (TYPES[file.suffix], file.read_bytes())
        for file in FOLDER.iterdir()
        if file.suffix in TYPES
    }


def health(statuses: Sequence[Status], now_monotonic: float) -> JsonReply:
    """Answer /healthz."""
    silent_s = max((now_monotonic - one.heartbeat_monotonic for one in statuses), default=None)
    if silent_s is None:
        return 503, {
            "healthy": False,
            "reason": "no worker has started yet; read the log if this lasts",
        }
    if silent_s >= HEARTBEAT_LIMIT_S:
        reason = f"a worker's loop has not turned for {silent_s:.0f} s"
        return 503, {"healthy": False, "reason": reason}
    return 200, {"healthy": True}


def readiness(statuses: Sequence[Status]) -> JsonReply:
    """Answer /readyz."""
    is_full = any(status.is_disk_full for status in statuses)
    if not statuses or not all(status.assigned for status in statuses):
        reason = "the consumer group has not assigned partitions yet"
        if why := next((status.lost_why for status in statuses if status.lost_why), ""):
            reason += f". The last session was lost: {why[:MOST_WHY]}"
        if is_full:
            reason = "the disk is full, so this instance serves no partitions: see the runbook"
        return 503, {"ready": False, "reason": reason, "not_ready": []}
    shards = [shard for status in statuses for shard in status.shards]
    not_ready = [
        {
            "topic": shard.topic,
            "partition": shard.partition,
            "state": shard.state,
            "behind": shard.behind,
            "watermark_ahead_ms": shard.ahead_ms,
            "unreadable_at": shard.unreadable_at,
            "unreadable_why": shard.unreadable_why,
        }
        for shard in shards
        if shard.state not in CAUGHT_UP
    ]
    if not_ready:
        reason = "shards are still catching up with their ingress partition"
        if any(shard["state"] == "unreadable" for shard in not_ready):
            reason = "a partition of the ingress cannot be read on: see the runbook"
        return 503, {"ready": False, "reason": reason, "not_ready": not_ready}
    is_paused = any(status.is_ingest_paused for status in statuses)
    return 200, {
        "ready": True,
        "shards": len(shards),
        "ingest_paused": is_paused,
        "disk_full": is_full,
    }
