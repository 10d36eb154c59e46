"""Asks for the broker's time before anything is delivered, and then at intervals
(docs/exactly-once.md#7-never-early)."""

import time
from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException

from proxy.clock import Clock
from proxy.errors import BrokerRefused
from proxy.kafka.broker_clock import STAMP_IT, BrokerClock, ClockAnswer

ASK_EVERY_S: Final = 900.0
"""Two free-running clocks drift apart by a tenth of a second in this time."""
ASK_SOON_S: Final = 10.0
"""Interval while the clocks disagree. A corrected clock is believed after at most this time."""
WAIT_S: Final = 0.5

log = structlog.get_logger(__name__)


class ClockWatch:
    """Sets the broker's time in `clock`, and logs whether the wall clock agrees with it."""

    def __init__(
        self,
        broker: BrokerClock,
        clock: Clock,
        topic: str,
        heartbeat: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker, self._clock, self._topic = broker, clock, topic
        self._heartbeat, self._now_s = heartbeat, now_s
        self._asked_s = 0.0
        self._standing = "agrees"
        self.close = broker.close

    def begin(self) -> None:
        """Wait for the broker's time. Raises BrokerRefused, or KafkaException if asking again may
        help."""
        self._ask()
        while (answer := self._broker.answer(WAIT_S)) is None:
            self._heartbeat()
        error = answer.error
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise BrokerRefused(
                f"The proxy's user may not write to {self._topic}. The proxy needs this to "
                "learn the broker's time.",
                "Grant Write on the topic.",
            )
        if error is not None:
            raise KafkaException(error)
        self._take(answer)

    def look(self) -> None:
        """Take an answer that has come. Ask again if the interval is over. Called often."""
        answer = self._broker.answer()
        if answer is not None and answer.error is not None:
            log.warning("broker's time unknown", error=answer.error.str())
            answer = None
        self._take(answer)
        every_s = ASK_SOON_S if self._standing in {"ahead", "behind"} else ASK_EVERY_S
        if self._now_s() >= self._asked_s + every_s:
            self._ask()

    def _ask(self) -> None:
        self._asked_s = self._now_s()
        self._broker.ask()

    def _take(self, answer: ClockAnswer | None) -> None:
        """Set the broker's time. Compare the clocks, and log the result if it is new."""
        if answer is not None:
            self._clock.set_broker_time(answer.time)
        before, lead_ms = self._standing, self._clock.lead_ms
        self._standing = _standing(lead_ms, self._clock.max_step_ms)
        if self._standing == before:
            return
        if self._standing == "ahead":
            log.error(
                "clock ahead of the broker's: records fire when the broker's clock reaches "
                "their due time",
                lead_ms=lead_ms,
                max_step_ms=self._clock.max_step_ms,
            )
        elif self._standing == "behind":
            log.error(
                "clock behind the broker's: all deliveries are late by the difference",
                lead_ms=lead_ms,
            )
        elif self._standing == "agrees":
            log.info("clock agrees with the broker's", lead_ms=lead_ms)
        else:
            log.warning(
                "clock not compared with the broker's, because the topic keeps the producers' "
                "timestamps: a clock that is ahead delivers early",
                topic=self._topic,
                remedy=STAMP_IT.format(self._topic),
            )


def _standing(lead_ms: int | None, max_step_ms: int) -> str:
    if lead_ms is None:
        return "unknown"
    if abs(lead_ms) <= max_step_ms:
        return "agrees"
    return "ahead" if lead_ms > 0 else "behind"
