"""Asks the broker what time it is: a write to a topic that the broker stamps is answered with it.

The record has no value, so compaction leaves nothing of it. Readers of the settings topic pass
over it (`proxy.kafka.settings_topic.CLOCK`).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, Producer

from proxy.clock import BrokerTime, monotonic_clock_ms
from proxy.config.settings import Settings
from proxy.kafka.client_settings import common_config
from proxy.kafka.settings_topic import clock_key

ANSWER_WITHIN_S: Final = 10.0
STAMP_IT: Final = (
    "kafka-configs.sh --bootstrap-server B --alter --entity-type topics --entity-name {} "
    "--add-config message.timestamp.type=LogAppendTime"
)
"""The remedy for a topic that keeps the producers' time; {} is its name."""


class ClockAnswer(NamedTuple):
    """`time` is None where the broker does not stamp the topic, or where there was an `error`."""

    time: BrokerTime | None
    error: KafkaError | None = None


class BrokerClock:
    """The clock of the broker that leads `topic`. All calls come from one thread.

    It is seen no later than its answer arrives: so an answer may be too early a time, by as long as
    the broker took, but never too late a one.
    """

    def __init__(
        self,
        new_producer: Callable[[], Producer],
        topic: str,
        group_id: str,
        monotonic_ms: Callable[[], int] = monotonic_clock_ms,
    ) -> None:
        self._new_producer = new_producer
        self._producer: Producer | None = None
        self._topic, self._key = topic, clock_key(group_id)
        self._monotonic_ms = monotonic_ms
        self._is_asking = False
        self._answer: ClockAnswer | None = None

    def ask(self) -> None:
        """Write the record and return at once; nothing while an earlier one is under way."""
        if self._is_asking:
            return
        if self._producer is None:
            self._producer = self._new_producer()
        self._is_asking = True
        self._producer.produce(self._topic, None, self._key, on_delivery=self._take)

    def answer(self, timeout_s: float = 0.0) -> ClockAnswer | None:
        """The answer to the last `ask`, once; None while there is none."""
        if self._producer is not None and self._is_asking:
            self._producer.poll(timeout_s)
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        """Ask no more."""
        self._producer = None

    def _take(self, error: KafkaError | None, message: Message) -> None:
        self._is_asking = False
        kind, stamp_ms = (0, 0) if error is not None else message.timestamp()
        is_stamped = kind == TIMESTAMP_LOG_APPEND_TIME
        stamp = BrokerTime(stamp_ms, self._monotonic_ms()) if is_stamped else None
        self._answer = ClockAnswer(stamp, error)


def clock_producer_config(settings: Settings) -> dict[str, Any]:
    """A producer that writes one record now and then, and needs no more than its leader's word."""
    return {
        **common_config(settings),
        "acks": 1,
        "linger.ms": 0,
        "message.timeout.ms": int(ANSWER_WITHIN_S * 1000),
        "log.connection.close": False,
        "reconnect.backoff.max.ms": 1_000,
    }
