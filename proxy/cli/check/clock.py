"""Whether this machine's clock agrees with the broker's, and watermarks that lie ahead of it.

To learn the broker's time one record without a value is written to the settings topic, as the proxy
does (`proxy.kafka.broker_clock`).
"""

from collections.abc import Iterator
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from proxy.cli.check.findings import Finding, advice, ok, warn
from proxy.cli.terminal.output import shown_duration
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.kafka.access.connection import Connection, client_config
from proxy.kafka.broker_clock import STAMP_IT, BrokerClock, ClockAnswer
from proxy.records.position import MetadataUnreadable, Position

SUBJECT = "clock"


def clock_findings(settings: Settings) -> Iterator[Finding]:
    """Findings about clocks; the settings topic is there."""
    topic = settings.topics.settings
    answer = _answer(settings)
    wall_ms = wall_clock_ms()
    if answer.error is not None:
        yield advice(
            SUBJECT,
            f"the broker's time is not known: {answer.error.str()}",
            f"Grant Write on {topic}: the proxy learns the broker's time by writing there.",
        )
    elif answer.time is None:
        yield warn(
            SUBJECT,
            f"{topic} keeps the producers' time, so the proxy's clock cannot be held against the "
            "broker's: one that is ahead delivers early",
            f"Let the broker stamp it: {STAMP_IT.format(topic)}",
        )
    else:
        broker_ms = answer.time.epoch_ms
        yield _lead(wall_ms - broker_ms, settings.clock.max_step_ms)
        yield from _watermarks(settings, broker_ms)


def _answer(settings: Settings) -> ClockAnswer:
    limit_ms = int(Connection.limit_s * 1000)
    config = client_config(settings, acks=1, linger_ms=0, message_timeout_ms=limit_ms)
    clock = BrokerClock(lambda: Producer(config), settings.topics.settings, settings.group_id)
    clock.ask()
    answer = clock.answer(2 * Connection.limit_s)
    return answer or ClockAnswer(None, KafkaError(KafkaError._TIMED_OUT))


def _lead(lead_ms: int, max_step_ms: int) -> Finding:
    if abs(lead_ms) <= max_step_ms:
        return ok(SUBJECT, f"agrees with the broker's to {abs(lead_ms)} ms")
    wrong = shown_duration(abs(lead_ms))
    mend = "Mend the time service of this machine, or of the broker."
    if lead_ms > 0:
        return warn(
            SUBJECT,
            f"{wrong} ahead of the broker's: the proxy goes by the broker's until they agree",
            mend,
        )
    return warn(SUBJECT, f"{wrong} behind the broker's: everything would be late by that", mend)


def _watermarks(settings: Settings, broker_ms: int) -> Iterator[Finding]:
    """Of a partition that a worker with a clock ahead has left in the future."""
    for partition, watermark_ms in sorted(_committed_watermarks(settings)):
        ahead_ms = watermark_ms - broker_ms
        if ahead_ms > settings.clock.max_step_ms:
            yield warn(
                f"partition {partition}",
                f"its watermark lies {shown_duration(ahead_ms)} ahead of the broker's clock: until "
                "then nothing of it fires",
                f"Wait, or set `recovery: set_back_watermark: [{partition}]` for one start.",
            )


def _committed_watermarks(settings: Settings) -> list[tuple[int, int]]:
    """(partition, watermark in epoch ms); none where the group may not be asked.

    Asked by a consumer that joins nothing: the admin client's call for it can end the process
    (`proxy.kafka.group.owners`).
    """
    found = list[tuple[int, int]]()
    ingress = settings.topics.ingress
    consumer = Consumer(client_config(settings, group_id=settings.group_id))
    with suppress(KafkaException):
        topic = consumer.list_topics(ingress, Connection.limit_s).topics[ingress]
        asked = [TopicPartition(ingress, partition) for partition in topic.partitions]
        for place in consumer.committed(asked, Connection.limit_s):
            with suppress(MetadataUnreadable):
                position = Position.from_metadata(place.offset, place.metadata)
                found.append((place.partition, position.watermark_ms))
    consumer.close()
    return found
