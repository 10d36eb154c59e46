"""Random headers of other schedulers. `any_requests` makes random headers of the proxy."""

from __future__ import annotations

from typing import Final

from tests.support.any_requests import INSTANTS, KEYS, NOW_MS, TOPICS, Shape, Value

EPOCHS_S: Final[list[Value]] = [
    *(b"1800000005", b"1800000000", b"0", b"999999999999", b"1000000000000", b"-5", b"+5"),
    *(b"9" * 19, b"1" * 20, b"007"),
]
EPOCHS_MS: Final[list[Value]] = [
    *(b"%d" % (NOW_MS + 5_000), b"0", b"999999999999999", b"1000000000000000", b"-5", b"+5"),
    *(b"9" * 19, b"1" * 20, b"-" + b"9" * 19, b"007"),
]
LENGTHS: Final[list[Value]] = [b"5000", b"0", b"-5000", b"+7", b"4294967296", b"9" * 16, b"- 5"]
SCHEDULES: Final[list[Value]] = [
    *(b"@at " + instant for instant in INSTANTS if instant is not None),
    *(b"@daily", b"@every 5m", b"0 0 5 * * *", b"@at", b"@at ", b"@AT 2027-01-15T08:00:00Z"),
]
BIG_ENDIAN: Final[list[Value]] = [
    *((NOW_MS + 5_000).to_bytes(size, "big") for size in (6, 7, 8)),
    *((10**15 - 1).to_bytes(8, "big"), (10**15).to_bytes(8, "big"), b"\xff" * 8, b"\x80", b"\x7f"),
    *(b"\xff" * 9, b"\x00" * 9, b"\x00", b"\x7f" + b"\xff" * 7, b"1800000000000"),
]
COUNTS: Final[list[Value]] = [
    *(b"\x00\x00\x00\x01", b"\x00\x00\x00\x02", b"\x00\x00\x01\x2c", b"\x7f\xff\xff\xff"),
    *(b"\x80\x00\x00\x00", b"\x02", b"\xc8", b"\x00", b"300", b"\x00\x00", b"\x00" * 5),
]
FOREIGN: Final[dict[str, list[Value]]] = {
    "cesium-delay-ms": LENGTHS,
    "cesium-deliver-at": EPOCHS_MS,
    "scheduler-epoch": EPOCHS_S,
    "scheduler-target-topic": TOPICS,
    "scheduler-target-key": KEYS,
    "schedule_schema_version": [b"1.0.0", b"1.0.0", b"2.0.0"],
    "schedule_source_type": [b"schedule", b"cancel", b"tombstone", b"Schedule"],
    "schedule_target_epoch": EPOCHS_S,
    "schedule_target_topic": TOPICS,
    "schedule_target_key": KEYS,
    "schedule_target_partition": [b"0", b"3", b"2147483647", b"2147483648", b"0000000000007"],
    "schedule_target_partition_key": KEYS,
    "DELAY": [b"3", b"0", b"-1", b"+3", b"99", b"10s", b"9" * 15, b"9" * 16, b"9" * 19],
    "TIMER_DELAY_SEC": LENGTHS,
    "TIMER_DELAY_MS": LENGTHS,
    "TIMER_DELIVER_MS": EPOCHS_MS,
    "__STARTDELIVERTIME": EPOCHS_MS,
    "TIMER_DEL_UNIQKEY": [b"AC11", b"orders+AC11", b"a+b+", b"+", b"\xff+\xfe"],
    "UNIQ_KEY": [b"AC11", b"\xff", b"x" * 257],
    "x-delay": LENGTHS,
    "Nats-Schedule": SCHEDULES,
    "Nats-Schedule-Target": TOPICS,
    "Nats-Schedule-Source": [b"sensors"],
    "Nats-Schedule-Time-Zone": [b"Europe/Amsterdam"],
    "Nats-Schedule-Next": [b"purge", b"1800000000"],
    "retry_topic-backoff-timestamp": BIG_ENDIAN,
    "retry_topic-attempts": COUNTS,
}
SOUND_FOREIGN: Final[dict[str, list[Value]]] = {
    "cesium-deliver-at": [b"%d" % (NOW_MS + 5_000)],
    "scheduler-epoch": [b"1800000005"],
    "scheduler-target-topic": [b"orders"],
    "scheduler-target-key": [b"k"],
    "schedule_source_type": [b"schedule"],
    "schedule_target_epoch": [b"1800000005"],
    "schedule_target_topic": [b"orders"],
    "schedule_target_key": [b"k"],
    "schedule_target_partition_key": [b"k"],
    "TIMER_DELIVER_MS": [b"%d" % (NOW_MS + 5_000)],
    "__STARTDELIVERTIME": [b"%d" % (NOW_MS + 5_000)],
    "x-delay": [b"5000"],
    "Nats-Schedule": [b"@at 2027-01-15T08:00:05Z"],
    "Nats-Schedule-Target": [b"orders"],
    "retry_topic-backoff-timestamp": [(NOW_MS + 5_000).to_bytes(6, "big")],
    "retry_topic-attempts": [b"\x00\x00\x00\x03"],
}
ETF1: Final = ("scheduler-epoch", "scheduler-target-topic", "scheduler-target-key")
KARAFKA: Final = (
    *("schedule_source_type", "schedule_target_epoch", "schedule_target_topic"),
    "schedule_target_key",
)
NATS: Final = ("Nats-Schedule", "Nats-Schedule-Target")
FOREIGN_SHAPES: Final[list[Shape]] = [
    (),
    ("timer-topic",),
    ("timer-topic", "timer-delay"),
    ("timer-cancel", *ETF1),
    ("timer-topic", "cesium-delay-ms"),
    ("timer-topic", "cesium-deliver-at"),
    ETF1,
    ("scheduler-epoch", "scheduler-target-topic"),
    KARAFKA,
    (*KARAFKA, "schedule_schema_version"),
    (*KARAFKA, "schedule_target_partition", "schedule_target_partition_key"),
    ("schedule_source_type",),
    *(
        ("timer-topic", name, "UNIQ_KEY")
        for name in ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
    ),
    ("timer-topic", "__STARTDELIVERTIME", "TIMER_DELIVER_MS"),
    ("TIMER_DEL_UNIQKEY", "TIMER_DELIVER_MS"),
    ("timer-topic", "x-delay"),
    NATS,
    ("timer-topic", "retry_topic-backoff-timestamp", "retry_topic-attempts"),
    ("timer-retry-group", "retry_topic-backoff-timestamp", "retry_topic-attempts"),
    (*ETF1, *KARAFKA),
    (*ETF1, *NATS),
    ("timer-topic", "timer-id", "timer-transaction", "x-delay"),
    ("timer-topic", "timer-deliver-at", "timer-hop-from", "timer-first-origin", "x-delay"),
]
