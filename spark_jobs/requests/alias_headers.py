"""The headers of other schedulers."""

from typing import Final, NamedTuple

CESIUM_DELAY_MS: Final = "cesium-delay-ms"
CESIUM_DELIVER_AT: Final = "cesium-deliver-at"

ETF1_EPOCH: Final = "scheduler-epoch"
ETF1_TOPIC: Final = "scheduler-target-topic"
ETF1_KEY: Final = "scheduler-target-key"

KARAFKA_VERSION: Final = "schedule_schema_version"
KARAFKA_TYPE: Final = "schedule_source_type"
KARAFKA_EPOCH: Final = "schedule_target_epoch"
KARAFKA_TOPIC: Final = "schedule_target_topic"
KARAFKA_KEY: Final = "schedule_target_key"
KARAFKA_PARTITION: Final = "schedule_target_partition"
KARAFKA_PARTITION_KEY: Final = "schedule_target_partition_key"

ROCKETMQ_LEVEL: Final = "DELAY"
ROCKETMQ_DELAY_SEC: Final = "TIMER_DELAY_SEC"
ROCKETMQ_DELAY_MS: Final = "TIMER_DELAY_MS"
ROCKETMQ_DELIVER_MS: Final = "TIMER_DELIVER_MS"
ROCKETMQ_CLOUD_MS: Final = "__STARTDELIVERTIME"
ROCKETMQ_DELETE: Final = "TIMER_DEL_UNIQKEY"
ROCKETMQ_UNIQUE_KEY: Final = "UNIQ_KEY"

RABBITMQ_DELAY_MS: Final = "x-delay"

NATS_SCHEDULE: Final = "Nats-Schedule"
NATS_TARGET: Final = "Nats-Schedule-Target"
NATS_SOURCE: Final = "Nats-Schedule-Source"
NATS_TIME_ZONE: Final = "Nats-Schedule-Time-Zone"
NATS_NEXT: Final = "Nats-Schedule-Next"

SPRING_DUE: Final = "retry_topic-backoff-timestamp"
SPRING_ATTEMPTS: Final = "retry_topic-attempts"


class AliasHeaders(NamedTuple):
    """The headers that make a record one of this scheduler's, and those read besides."""

    triggers: tuple[str, ...]
    others: tuple[str, ...] = ()


ALIAS_HEADERS: Final = {
    "cesium": AliasHeaders((CESIUM_DELAY_MS, CESIUM_DELIVER_AT)),
    "etf1": AliasHeaders((ETF1_EPOCH, ETF1_TOPIC, ETF1_KEY)),
    "karafka": AliasHeaders(
        (
            *(KARAFKA_VERSION, KARAFKA_TYPE, KARAFKA_EPOCH, KARAFKA_TOPIC),
            *(KARAFKA_KEY, KARAFKA_PARTITION, KARAFKA_PARTITION_KEY),
        )
    ),
    "rocketmq": AliasHeaders(
        (
            *(ROCKETMQ_LEVEL, ROCKETMQ_DELAY_SEC, ROCKETMQ_DELAY_MS),
            *(ROCKETMQ_DELIVER_MS, ROCKETMQ_CLOUD_MS, ROCKETMQ_DELETE),
        ),
        (ROCKETMQ_UNIQUE_KEY,),
    ),
    "rabbitmq": AliasHeaders((RABBITMQ_DELAY_MS,)),
    "nats": AliasHeaders((NATS_SCHEDULE, NATS_TARGET, NATS_NEXT), (NATS_SOURCE, NATS_TIME_ZONE)),
    "spring": AliasHeaders((SPRING_DUE, SPRING_ATTEMPTS)),
}
"""By alias, in the order in which they are read."""
