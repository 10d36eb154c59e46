"""The broker's clock, read from the timestamp that the broker gives a record. The record has no
value, so compaction removes it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, Producer

from proxy.clock import BrokerTime, monotonic_clock_ms
from proxy.config.settings import Settings
from proxy.kafka.client_settings import common_config
from proxy.kafka.settings_topic import CLOCK, settings_key

ANSWER_WITHIN_S: Final = 10.0
STAMP_IT: Final = (
    "kafka-configs.sh --bootstrap-server B --alter --entity-type topics --entity-name {} "
    "--add-config message.timestamp.type=LogAppendTime"
)
"""The remedy for a topic with producer timestamps. {} is its name."""


class ClockAnswer(NamedTuple):
    """`time` is None after an `error`, or if records keep the producer's timestamp."""

    time: BrokerTime | None
    error: KafkaError | None = None


class BrokerClock:
    """The clock of the broker that leads `topic`, for one thread. An answer is behind by at most
    the duration of the request, and is never ahead."""

    def __init__(
        self,
        new_producer: Callable[[], Producer],
        topic: str,
        group_id: str,
        monotonic_ms: Callable[[], int] = monotonic_clock_ms,
    ) -> None:
        self._new_producer = new_producer
        self._producer: Producer | None = None
        self._topic, self._key = topic, settings_key(CLOCK, group_id)
        self._monotonic_ms = monotonic_ms
        self._is_asking = False
        self._answer: ClockAnswer | None = None

    def ask(self) -> None:
        """Write a record, and do not wait. While an answer is awaited, write nothing."""
        if self._is_asking:
            return
        if self._producer is None:
            self._producer = self._new_producer()
        self._producer.produce(self._topic, None, self._key, on_delivery=self._take)
        self._is_asking = True

    def answer(self, timeout_s: float = 0.0) -> ClockAnswer | None:
        if self._producer is not None and self._is_asking:
            self._producer.poll(timeout_s)
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        self._producer, self._is_asking = None, False

    def _take(self, error: KafkaError | None, message: Message) -> None:
        self._is_asking = False
        kind, epoch_ms = (0, 0) if error is not None else message.timestamp()
        is_brokers = kind == TIMESTAMP_LOG_APPEND_TIME
        time = BrokerTime(epoch_ms, self._monotonic_ms()) if is_brokers else None
        self._answer = ClockAnswer(time, error)


def clock_producer_config(settings: Settings) -> dict[str, Any]:
    """Return settings of a producer that writes single records and needs only the leader's ack."""
    return {
        **common_config(settings),
        "acks": 1,
        "linger.ms": 0,
        "message.timeout.ms": int(ANSWER_WITHIN_S * 1000),
        "log.connection.close": False,
        "reconnect.backoff.max.ms": 1_000,
    }
