"""The orderly mode: a failed record is tried again where it lies, and its key waits for it."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from proxy.client.errors import ConfigRefused
from proxy.client.retries.committing.offset_metadata import Attempt
from proxy.client.retries.handling.failure import Failure
from proxy.client.retries.received import Received
from proxy.requests.times import parse_delay_ms, parse_levels

DELAYS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's level table from its first level on: it suspends a queue for 1 s."""


class LocalRetries:
    """When a record that has failed is tried again, and when it is given up.

    `delays_ms` has the delay after the first failure, the second and so on; the last one goes for
    all that follow. `now_ms` is the wall clock: the time is kept over restarts.
    """

    def __init__(
        self,
        delays_ms: Sequence[int],
        max_attempts: int,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._delays_ms, self._max_attempts, self._now_ms = delays_ms, max_attempts, now_ms

    def next_attempt(self, record: Received, failure: Failure) -> Attempt | None:
        """The attempt that follows this failure; None when the record is given up."""
        if failure.is_final or record.attempt >= self._max_attempts:
            return None
        if failure.delay is not None:
            delay_ms = parse_delay_ms(failure.delay)
        else:
            delay_ms = self._delays_ms[min(record.attempt, len(self._delays_ms) - 1)]
        return Attempt(record.attempt + 1, self._now_ms() + delay_ms)

    def wait_s(self, attempt: Attempt) -> float:
        """How long from now until it is due."""
        return max(0, attempt.due_ms - self._now_ms()) / 1000


def local_retries(orderly: object, delays: object, max_attempts: int) -> LocalRetries | None:
    """None: failed records are not tried again here. Raises ConfigRefused."""
    if not isinstance(orderly, bool):
        raise ConfigRefused(f"orderly is {orderly!r}: it must be True or False")
    if not orderly and delays is not None:
        raise ConfigRefused("orderly_delays is for orderly=True alone: add it, or leave it out")
    return LocalRetries(_delays_ms(delays), max_attempts) if orderly else None


def _delays_ms(delays: object) -> Sequence[int]:
    if delays is None:
        return parse_levels(DELAYS)
    if not isinstance(delays, str):
        raise ConfigRefused(f"orderly_delays is {delays!r}: write delays apart by blanks ('1s 5s')")
    try:
        return parse_levels(delays)
    except ValueError as error:
        raise ConfigRefused(f"orderly_delays is no table of delays: {error}") from None
