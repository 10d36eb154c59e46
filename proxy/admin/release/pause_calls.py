"""The calls that hold targets back and let them go, and that stop taking in."""

import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from proxy.admin.exchange import Reply, Request, as_json, bad_request
from proxy.admin.listing.filters import pattern_of
from proxy.admin.release.noticed import all_notice, code_of
from proxy.clock import wall_clock_ms
from proxy.config.settings import MOST_PER_SECOND
from proxy.telemetry.status import Status

RATE: Final = re.compile(r"[1-9][0-9]{0,6}")


class PausePort(Protocol):
    """What the calls ask of `proxy.admin.broker_access.BrokerAccess`."""

    def pause(self, pattern: str, now_ms: int) -> None: ...
    def resume(self, pattern: str, per_second: int | None, now_ms: int) -> None: ...
    def pause_ingest(self, now_ms: int) -> None: ...
    def resume_ingest(self) -> None: ...


class PauseCalls:
    """All calls raise Problem."""

    def __init__(self, read_statuses: Callable[[], Sequence[Status]], broker: PausePort) -> None:
        self._read_statuses, self._broker = read_statuses, broker

    def pauses(self, request: Request) -> Reply:
        """Which patterns of targets are paused or released at a rate, as each worker here knows."""
        request.query()
        statuses = self._read_statuses()
        paused = {pattern for status in statuses for pattern in status.paused}
        rates = {name: n for status in statuses for name, n in status.release_rates.items()}
        return as_json(
            200, {"paused": sorted(paused), "release_rates": dict(sorted(rates.items()))}
        )

    def pause(self, request: Request, pattern: str) -> Reply:
        """Pause the targets of a pattern."""
        request.query()
        self._broker.pause(pattern_of(pattern), wall_clock_ms())
        is_noticed = all_notice(self._read_statuses, lambda status: pattern in status.paused)
        reply = {"pattern": pattern, "paused": True, "per_second": None, "in_force": is_noticed}
        return as_json(code_of(is_noticed=is_noticed), reply)

    def resume(self, request: Request, pattern: str) -> Reply:
        """Let them go again, what was held back at a rate if one is named."""
        per_second = _rate_of(request.query("per_second").get("per_second"))
        self._broker.resume(pattern_of(pattern), per_second, wall_clock_ms())

        def has_noticed(status: Status) -> bool:
            rate = status.release_rates.get(pattern)
            return pattern not in status.paused and rate == per_second

        is_noticed = all_notice(self._read_statuses, has_noticed)
        reply = {"pattern": pattern, "paused": False, "per_second": per_second}
        return as_json(code_of(is_noticed=is_noticed), {**reply, "in_force": is_noticed})

    def ingest(self, request: Request) -> Reply:
        """Whether taking in is paused, and how many ingress records are not read here."""
        request.query()
        statuses = self._read_statuses()
        reply = {
            "paused": any(status.is_ingest_paused for status in statuses),
            "unread": sum(shard.behind for status in statuses for shard in status.shards),
        }
        return as_json(200, reply)

    def pause_ingest(self, request: Request) -> Reply:
        """Read nothing more of the ingress."""
        request.query()
        self._broker.pause_ingest(wall_clock_ms())
        return self._ingest_noticed(is_paused=True)

    def resume_ingest(self, request: Request) -> Reply:
        """Read on."""
        request.query()
        self._broker.resume_ingest()
        return self._ingest_noticed(is_paused=False)

    def _ingest_noticed(self, *, is_paused: bool) -> Reply:
        is_noticed = all_notice(
            self._read_statuses, lambda status: status.is_ingest_paused is is_paused
        )
        reply = {"paused": is_paused, "in_force": is_noticed}
        return as_json(code_of(is_noticed=is_noticed), reply)


def _rate_of(text: str | None) -> int | None:
    if text is None:
        return None
    if RATE.fullmatch(text) is None or int(text) > MOST_PER_SECOND:
        raise bad_request(f"`per_second` is a number from 1 to {MOST_PER_SECOND}.")
    return int(text)
