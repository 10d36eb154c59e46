"""Holds a worker's clock against the broker's: as a session begins, and again and again.

Until the broker has answered nothing may fire (docs/exactly-once.md#7-never-early).
"""

import time
from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException

from proxy.clock import Clock
from proxy.errors import BrokerRefused
from proxy.kafka.broker_clock import STAMP_IT, BrokerClock, ClockAnswer

ASK_EVERY_S: Final = 900.0
"""Two clocks that nobody corrects drift apart by a tenth of a second in that time."""
ASK_SOON_S: Final = 10.0
"""While they disagree: so long at most a clock that has been mended is not believed."""
WAIT_S: Final = 0.5

log = structlog.get_logger(__name__)


class ClockWatch:
    """Sets the broker's time in `clock`, and says in the log when the two disagree.

    `topic` is where the broker is asked; `heartbeat` is called while it is waited for.
    """

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

    def begin(self) -> None:
        """Wait for the broker's time. Raises BrokerRefused; KafkaException where asking again may
        help."""
        self._ask()
        while (answer := self._broker.answer(WAIT_S)) is None:
            self._heartbeat()
        if answer.error is not None:
            raise _explained(answer.error, self._topic)
        self._take(answer)
        self._say()

    def look(self) -> None:
        """Called often: takes the answer that has come, and asks when it is time."""
        answer = self._broker.answer()
        if answer is not None and answer.error is not None:
            log.warning("the broker's time is not known for now", error=answer.error.str())
        elif answer is not None:
            self._take(answer)
        every_s = ASK_SOON_S if self._disagrees() else ASK_EVERY_S
        if self._now_s() >= self._asked_s + every_s:
            self._ask()
        self._say()

    def close(self) -> None:
        """Ask no more."""
        self._broker.close()

    def _ask(self) -> None:
        self._asked_s = self._now_s()
        self._broker.ask()

    def _take(self, answer: ClockAnswer) -> None:
        self._clock.set_broker_time(answer.time)

    def _disagrees(self) -> bool:
        lead_ms = self._clock.lead_ms
        return lead_ms is not None and abs(lead_ms) > self._clock.max_step_ms

    def _say(self) -> None:
        lead_ms = self._clock.lead_ms
        standing = _standing(lead_ms, self._clock.max_step_ms)
        if standing == self._standing:
            return
        self._standing = standing
        if standing == "ahead":
            log.error(
                "clock ahead of the broker's: nothing fires before the broker's clock has reached "
                "its due",
                lead_ms=lead_ms,
                max_step_ms=self._clock.max_step_ms,
            )
        elif standing == "behind":
            log.error("clock behind the broker's: everything is late by as much", lead_ms=lead_ms)
        elif standing == "agrees":
            log.info("clock agrees with the broker's", lead_ms=lead_ms)
        else:
            log.warning(
                "clock not held against the broker's, whose topic keeps the producers' time: one "
                "that is ahead delivers early",
                topic=self._topic,
                remedy=STAMP_IT.format(self._topic),
            )


def _standing(lead_ms: int | None, max_step_ms: int) -> str:
    if lead_ms is None:
        return "unknown"
    if abs(lead_ms) <= max_step_ms:
        return "agrees"
    return "ahead" if lead_ms > 0 else "behind"


def _explained(error: KafkaError, topic: str) -> Exception:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return BrokerRefused(
            f"The proxy's user may not write to {topic}, which tells it the broker's time.",
            "Grant Write on the topic.",
        )
    return KafkaException(error)
