"""The broker's quotas, learnt from its answers to the clients of one worker.

After a throttled answer the broker does not read the connection for some time (KIP-219). That time
has no upper limit. The broker counts bytes over about ten seconds (quota.window.num,
quota.window.size.seconds), so a burst may pass and throttle the requests after it.
"""

import math
import time
from collections.abc import Callable
from typing import Final, Literal

import structlog
from confluent_kafka import ThrottleEvent

Direction = Literal["writing", "reading"]

UNBOUNDED: Final = 2**40
LEAST_BYTES: Final = 1_000
"""Lowest limit of a transaction's bytes. One record of any size may always be sent."""
TELLING_BYTES: Final = 256_000
"""A throttled transaction below this size does not show the right limit for a large one."""
RECORD_BYTES: Final = 100
"""Approximate size of a delivery's stamps, or of an outcome."""
LONG_S: Final = 3.0
"""The limit may grow if a transaction and the wait after it took at most this long."""
SLOW_S: Final = 5.0
"""A throttled transaction that took longer shrinks the limit. A request quota alone costs less."""
SHRUNK_TO: Final = 8
"""If a transaction was given up, the limit was far too high, and is divided by this number."""
GROWN_BY: Final = 1.25
"""A quota's window hides at first that the quota is exceeded, so the limit must grow slowly."""
SETTLED_AFTER_S: Final = 15.0
"""For this time after a transaction was given up, the broker still counts its requests."""
RECENT_S: Final = 60.0
LOG_EVERY_S: Final = 60.0
REMEDY: Final = "docs/operations/runbook.md#delayproxythrottled"

log = structlog.get_logger(__name__)


class Throttling:
    """Knows the quotas of one worker. Outlives sessions, so that the next session knows the limit.
    `count` gets the direction and seconds of each throttled answer. `written` and `read` are the
    `throttle_cb` of the clients. The client library calls them in any thread, within other calls.
    """

    def __init__(
        self,
        count: Callable[[Direction, float], None] = lambda _direction, _seconds: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count, self.now_s = count, now_s
        self.most_bytes = UNBOUNDED
        self.until_s = 0.0
        """When the broker reads the producer's requests again. 0: it never throttled."""
        self.read_until_s = 0.0
        """When the broker reads the consumers' requests again. 0: it never throttled them."""
        self._heard_s, self._given_up_s = 0.0, -SETTLED_AFTER_S
        self._logged_s: dict[Direction, float] = {}

    def written(self, event: ThrottleEvent) -> None:
        if event.throttle_time > 0:
            self._heard_s = self.now_s()
            self.until_s = max(self.until_s, self._heard_s + event.throttle_time)
            self._tell("writing", event)

    def read(self, event: ThrottleEvent) -> None:
        if event.throttle_time > 0:
            self.read_until_s = self.now_s() + event.throttle_time
            self._tell("reading", event)

    def wait_ms(self) -> int:
        """Return the time for which the broker does not read the producer's requests."""
        if not self.until_s:
            return 0
        return max(0, math.ceil((self.until_s - self.now_s()) * 1_000))

    @property
    def is_recent(self) -> bool:
        return bool(self.until_s) and self.now_s() < self.until_s + RECENT_S

    @property
    def is_reading_recent(self) -> bool:
        """Whether the broker throttled a consumer in the last minute. Then it is costly to fetch
        records twice."""
        return bool(self.read_until_s) and self.now_s() < self.read_until_s + RECENT_S

    def has_held_up_since(self, since_s: float) -> bool:
        """Return whether the producer's requests had to wait since `since_s` (by `now_s`)."""
        return bool(self.until_s) and (self.until_s > since_s or self._heard_s >= since_s)

    def committed(self, size_bytes: int, began_s: float, took_s: float) -> None:
        """Note a commit, and adapt the limit. After a throttled transaction, the limit falls to the
        bytes that take `LONG_S` at the same pace. If the transaction was slow and used at least
        half of the limit, half of its bytes become the limit. A quick transaction that used at
        least half of the limit raises the limit."""
        if not self.until_s:
            return
        whole_s = took_s + self.wait_ms() / 1_000
        is_throttled = self.has_held_up_since(began_s)
        if is_throttled:
            passed_bytes = int(size_bytes / max(whole_s, 0.001) * LONG_S)
            told_bytes = max(TELLING_BYTES, size_bytes, passed_bytes)
            self.most_bytes = min(self.most_bytes, told_bytes)
        if 2 * size_bytes < self.most_bytes:
            return
        if is_throttled and took_s > SLOW_S:
            self.most_bytes = max(LEAST_BYTES, size_bytes // 2)
        elif whole_s <= LONG_S and began_s >= self._given_up_s + SETTLED_AFTER_S:
            self.most_bytes = min(UNBOUNDED, int(self.most_bytes * GROWN_BY))

    def given_up(self, size_bytes: int) -> None:
        too_large_bytes = min(self.most_bytes, max(TELLING_BYTES, size_bytes))
        self.most_bytes = max(LEAST_BYTES, too_large_bytes // SHRUNK_TO)
        self._given_up_s = self.now_s()

    def _tell(self, direction: Direction, event: ThrottleEvent) -> None:
        self._count(direction, event.throttle_time)
        now_s = self.now_s()
        if now_s - self._logged_s.get(direction, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_s[direction] = now_s
            log.warning(
                "the broker throttles the proxy: a quota of its user or client id is used up",
                direction=direction,
                broker=f"{event.broker_name}/{event.broker_id}",
                throttled_s=round(event.throttle_time, 3),
                remedy=REMEDY,
            )
