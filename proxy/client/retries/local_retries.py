"""The orderly mode: a failed record is tried again where it lies, and its key waits for it."""

from collections.abc import Sequence
from typing import Final

from proxy.client.errors import ConfigRefused
from proxy.client.retries.handling.failure import Failure
from proxy.client.retries.received import Received
from proxy.client.when import delay_text
from proxy.protocol.times import parse_delay_ms, parse_levels

DELAYS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's level table from its first level on: it suspends a queue for 1 s."""


class LocalRetries:
    """When a record that has failed is tried again, and when it is given up.

    `delays_ms` has the delay after the first failure, the second and so on; the last one goes for
    all that follow.
    """

    def __init__(self, delays_ms: Sequence[int], max_attempts: int) -> None:
        self._delays_ms, self._max_attempts = delays_ms, max_attempts

    def wait_s(self, record: Received, failure: Failure) -> float | None:
        """Return how long the record waits after this failure. None: it is given up."""
        if failure.is_final or record.attempt >= self._max_attempts:
            return None
        if failure.delay is not None:
            delay_ms = parse_delay_ms(failure.delay)
        else:
            delay_ms = self._delays_ms[min(record.attempt, len(self._delays_ms) - 1)]
        return delay_ms / 1000


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
        for one in delays.split():
            delay_text(one, "one of the delays")
        return parse_levels(delays)
    except ValueError as error:
        raise ConfigRefused(f"orderly_delays is no table of delays: {error}") from None
