"""Targets that refuse records, and the age of refused records."""

import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.clock import wall_clock_ms
from proxy.telemetry.collectors import OTHER

MINUTE_MS: Final = 60_000
SOON_MS: Final = 2 * MINUTE_MS
SECOND_MS: Final = 1_000
TRIED_WITHIN_MS: Final = 10_000
"""The metric includes a record for this long after the time of its next attempt. Otherwise the
metric would have a gap before each further failure."""
LOGGED_EVERY_MS: Final = MINUTE_MS
MOST_TARGETS: Final = 200
"""Limit of pairs of target and reason. All further targets share one entry for each reason."""

REMEDIES: Final = {
    "target-unknown": "create the topic: its records wait for it",
    "not-authorised": "grant the right that kafka-delay-proxy rights --topic prints, or create the "
    "topic",
}
RUNBOOK: Final = "see docs/operations/runbook.md#delayproxyrequeues"

log = structlog.get_logger(__name__)


class RefusedTarget(NamedTuple):
    """A target that refuses records, and why."""

    target: str
    reason: str
    detail: str
    records: int
    """Number of records whose next publish attempt is still to come."""
    oldest_due_ms: int


class _Refused:
    """The records that wait for their next publish attempt to a target.

    `by_time`: time before which the next attempts come -> number of records, and their earliest
    due. The times are full seconds for attempts within SOON_MS, and full minutes otherwise."""

    def __init__(self) -> None:
        self.detail = ""
        self.logged_ms = 0
        self.by_time: dict[int, tuple[int, int]] = {}

    def add(self, due_ms: int, again_ms: int, now_ms: int) -> None:
        step_ms = SECOND_MS if again_ms - now_ms < SOON_MS else MINUTE_MS
        before_ms = (again_ms // step_ms + 1) * step_ms
        records, oldest_ms = self.by_time.get(before_ms, (0, due_ms))
        self.by_time[before_ms] = records + 1, min(oldest_ms, due_ms)

    def records(self, now_ms: int) -> int:
        return sum(records for before, (records, _) in self.by_time.items() if before > now_ms)

    def forget(self, now_ms: int) -> None:
        """Drop records whose next publish attempt has come. If the attempt fails, `put_off` adds
        them again."""
        past = [before for before in self.by_time if before + TRIED_WITHIN_MS <= now_ms]
        for before in past:
            del self.by_time[before]


class RefusedTargets(Collector):
    """Counts records that committed transactions put off, because their targets refuse them."""

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._refused: dict[tuple[str, str], _Refused] = {}
        self._lock = threading.Lock()

    def put_off(self, target: str, why: str, due_ms: int, again_ms: int) -> None:
        """Count a record that is tried again. `why` is the reason's code and a sentence."""
        code, _, detail = why.partition(": ")
        with self._lock:
            refused = self._of(target, code)
            refused.detail = detail
            now_ms = self._now_ms()
            refused.add(due_ms, again_ms, now_ms)
            is_logged = now_ms - refused.logged_ms < LOGGED_EVERY_MS
            if not is_logged:
                refused.logged_ms = now_ms
        if not is_logged:
            log.warning(
                "a target rejects its records: they are sent again later",
                target=target,
                reason=code,
                detail=detail,
                next_attempt_in_s=max(0, again_ms - now_ms) // 1000,
                remedy=REMEDIES.get(code, RUNBOOK),
            )

    def now(self) -> tuple[RefusedTarget, ...]:
        with self._lock:
            self._forget()
            now_ms = self._now_ms()
            found = [
                RefusedTarget(
                    target,
                    code,
                    refused.detail,
                    refused.records(now_ms),
                    min(oldest_ms for _, oldest_ms in refused.by_time.values()),
                )
                for (target, code), refused in self._refused.items()
                if refused.by_time
            ]
        return tuple(sorted(found, key=lambda one: one.oldest_due_ms))

    def collect(self) -> Iterator[Metric]:
        """Yield the age of the oldest due by target and reason. There is always at least one
        series."""
        family = GaugeMetricFamily(
            "delay_proxy_target_refused_seconds",
            "Time since the due time of the oldest record that its target rejects. The record is "
            "sent again. The time is known after the first failed publish attempt since the "
            "start.",
            labels=["target", "reason"],
        )
        now_ms = self._now_ms()
        found = {(one.target, one.reason): one.oldest_due_ms for one in self.now()}
        for (target, reason), due_ms in {(OTHER, "target-unknown"): now_ms, **found}.items():
            family.add_metric([target, reason], max(0, now_ms - due_ms) / 1000)
        yield family

    def _of(self, target: str, code: str) -> _Refused:
        place = target, code
        if place not in self._refused:
            if len(self._refused) >= MOST_TARGETS:
                self._forget()
            if len(self._refused) >= MOST_TARGETS:
                place = OTHER, code
        return self._refused.setdefault(place, _Refused())

    def _forget(self) -> None:
        now_ms = self._now_ms()
        for place, refused in list(self._refused.items()):
            refused.forget(now_ms)
            if not refused.by_time and now_ms - refused.logged_ms >= LOGGED_EVERY_MS:
                del self._refused[place]
