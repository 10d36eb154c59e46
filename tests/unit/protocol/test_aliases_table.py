"""A test for each row of the tables in docs/aliases.md, named by the row's own sentence.

Records are text: `name: value` separated by ` | `, `null` for a null value, `0x` before bytes. A
row expects added headers, or one refusal code.
"""

from dataclasses import dataclass

import pytest

from proxy.protocol.aliases import ALIASES, Translator
from proxy.protocol.body import Headers
from proxy.protocol.outcomes import REASONS, Rejection


@dataclass(frozen=True)
class Row:
    alias: str
    rule: str
    record: str
    expected: str
    key: bytes | None = b"id-1"
    value: bytes | None = b"body"


def headers(text: str) -> Headers:
    pairs = [pair.split(": ", 1) for pair in text.split(" | ") if pair]
    return [(name, _value(value)) for name, value in pairs]


def _value(text: str) -> bytes | None:
    if text.startswith("0x"):
        return bytes.fromhex(text[2:])
    return None if text == "null" else text.encode()


LEFT_ALONE = ""
NEGATIVE_OR_NOT_A_NUMBER = ("-5", "+5", " 5", "5.0", "", "null", "1" * 20)
CESIUM = [
    Row("cesium", rule, record, expected)
    for rule, record, expected in [
        (
            "milliseconds after the record's timestamp",
            "cesium-delay-ms: 30000",
            "timer-delay: 30000",
        ),
        (
            "epoch milliseconds",
            "cesium-deliver-at: 1767258000123",
            "timer-deliver-at: 1767258000123",
        ),
        (
            "wins over a delay, which is then ignored",
            "cesium-deliver-at: 1767258000123 | cesium-delay-ms: soon",
            "timer-deliver-at: 1767258000123",
        ),
        *(
            (
                "the value has a sign, a blank or a point, or is empty",
                f"cesium-delay-ms: {value}",
                "time-unreadable",
            )
            for value in NEGATIVE_OR_NOT_A_NUMBER
        ),
    ]
]

WHERE = "scheduler-target-topic: videos"
WHEN = "scheduler-epoch: 1893456000"
SCHEDULE = f"{WHEN} | {WHERE} | scheduler-target-key: vid1"
SCHEDULED = (
    "timer-topic: videos | timer-deliver-at: 1893456000000 | timer-key: vid1 | timer-id: id-1"
)
NO_EPOCH = "missing, negative or unreadable"
NO_KEY = "a schedule or a cancel has no key"
ETF1 = [
    Row("etf1", "epoch seconds", SCHEDULE, SCHEDULED),
    Row("etf1", "the target topic", SCHEDULE, SCHEDULED),
    Row("etf1", "the key at the target", SCHEDULE, SCHEDULED),
    Row("etf1", "a later record with the same key replaces it", SCHEDULE, SCHEDULED),
    Row("etf1", "is delivered like any other value", SCHEDULE, SCHEDULED, value=b""),
    Row(
        "etf1",
        "without it the key at the target is null",
        f"{WHEN} | {WHERE}",
        SCHEDULED.replace("vid1", "null"),
    ),
    Row(
        "etf1",
        "cancels the schedule with the record's key",
        SCHEDULE,
        "timer-cancel: id-1",
        value=None,
    ),
    Row(
        "etf1",
        "cancels even if the record has no header",
        LEFT_ALONE,
        "timer-cancel: id-1",
        value=None,
    ),
    Row(
        "etf1",
        "is delivered if the record has a timer- header",
        "timer-topic: orders",
        LEFT_ALONE,
        value=None,
    ),
    Row(
        "etf1",
        "is delivered if the record has a timer- header",
        f"{SCHEDULE} | timer-topic: orders",
        SCHEDULED.removeprefix("timer-topic: videos | "),
        value=None,
    ),
    Row("etf1", "missing", WHEN, "target-missing"),
    Row("etf1", NO_EPOCH, WHERE, "time-unreadable"),
    *(
        Row("etf1", NO_EPOCH, f"{WHERE} | scheduler-epoch: {epoch}", "time-unreadable")
        for epoch in ("null", "-5", "tomorrow", "1893456000000000")
    ),
    *(
        Row("etf1", NO_KEY, SCHEDULE, "header-unreadable", key, value)
        for key in (None, b"", b"  ")
        for value in (b"body", None)
    ),
]

ENVELOPE = (
    "schedule_schema_version: 1.0.0 | schedule_source_type: schedule | "
    "schedule_target_epoch: 1893456000 | schedule_target_topic: events"
)
KEYED = f"{ENVELOPE} | schedule_target_key: user-1"
ENVELOPED = "timer-topic: events | timer-deliver-at: 1893456000000 | timer-key: user-1"
IDENTIFIED = f"{ENVELOPED} | timer-id: id-1"
KARAFKA = [
    Row("karafka", rule, record, expected)
    for rule, record, expected in [
        ("epoch seconds", KEYED, IDENTIFIED),
        ("the target topic", KEYED, IDENTIFIED),
        ("the key at the target", KEYED, IDENTIFIED),
        ("a later record with the same key replaces it", KEYED, IDENTIFIED),
        (
            "without it the key at the target is null",
            ENVELOPE,
            IDENTIFIED.replace("user-1", "null"),
        ),
        (
            "the target partition",
            f"{KEYED} | schedule_target_partition: 2",
            f"{ENVELOPED} | timer-partition: 2 | timer-id: id-1",
        ),
        (
            "equal to the target key",
            f"{KEYED} | schedule_target_partition_key: user-1",
            IDENTIFIED,
        ),
        (
            "other than the target key",
            f"{KEYED} | schedule_target_partition_key: tenant-9",
            "header-unsupported",
        ),
        (
            "other than 1.0.0",
            KEYED.replace("1.0.0", "2.0.0"),
            "header-unsupported",
        ),
        *(
            ("another type, or missing", record, "header-unreadable")
            for record in (
                KEYED.replace("type: schedule", "type: message"),
                KEYED.replace("type: schedule", "type: null"),
                KEYED.replace("schedule_source_type: schedule | ", ""),
            )
        ),
    ]
] + [
    Row("karafka", rule, record, expected, value=None)
    for rule, record, expected in [
        (
            "cancel: ends the schedule with the record's key",
            "schedule_schema_version: 1.0.0 | schedule_source_type: cancel",
            "timer-cancel: id-1",
        ),
        (
            "tombstone: ends this schedule too",
            KEYED.replace("type: schedule", "type: tombstone"),
            "timer-cancel: id-1",
        ),
        ("is delivered if the type is schedule", KEYED, IDENTIFIED),
    ]
]

NOT_POSITIVE = "0 or less: other properties count"
RANKS = "level beats seconds, seconds beat milliseconds, all beat a point in time"
THE_SAME = "another property gives a different time"
UNIQUE = "the id, if the record has a time property"
MOMENT = "TIMER_DELIVER_MS: 1767258000123"
CLOUD = "__STARTDELIVERTIME: 1767258000123"
AT_MOMENT = "timer-deliver-at: 1767258000123"
ROCKETMQ = [
    Row("rocketmq", rule, record, expected)
    for rule, record, expected in [
        ("a delay level", "DELAY: 3", "timer-level: 3"),
        (NOT_POSITIVE, "DELAY: 0 | TIMER_DELAY_SEC: 5", "timer-delay: 5000"),
        (NOT_POSITIVE, "DELAY: -1", LEFT_ALONE),
        ("a delay in seconds", "TIMER_DELAY_SEC: 10", "timer-delay: 10000"),
        ("a delay in milliseconds", "TIMER_DELAY_MS: 10", "timer-delay: 10"),
        ("epoch milliseconds", MOMENT, AT_MOMENT),
        (RANKS, f"{MOMENT} | TIMER_DELAY_SEC: 5 | DELAY: 4", "timer-level: 4"),
        (RANKS, f"{MOMENT} | TIMER_DELAY_MS: 7 | TIMER_DELAY_SEC: 5", "timer-delay: 5000"),
        (RANKS, f"{MOMENT} | TIMER_DELAY_MS: 7", "timer-delay: 7"),
        (
            "a negative time: delivered at once",
            "TIMER_DELIVER_MS: -1",
            "timer-deliver-at: 0",
        ),
        ("epoch milliseconds (Tencent Cloud)", CLOUD, AT_MOMENT),
        (THE_SAME, f"{CLOUD} | TIMER_DELIVER_MS: 1767258000124", "time-unreadable"),
        (THE_SAME, f"{CLOUD} | DELAY: 3", "time-unreadable"),
        ("epoch milliseconds (Tencent Cloud)", f"{CLOUD} | {MOMENT}", AT_MOMENT),
        (UNIQUE, "TIMER_DELAY_MS: 7 | UNIQ_KEY: AC11", "timer-delay: 7 | timer-id: AC11"),
        (UNIQUE, "UNIQ_KEY: AC11", LEFT_ALONE),
        (
            "cancels the record with that unique key",
            f"{MOMENT} | {CLOUD} | TIMER_DEL_UNIQKEY: AC11",
            "timer-cancel: AC11",
        ),
        (
            "cancels also if topic and + precede the key",
            "TIMER_DEL_UNIQKEY: orders+AC11",
            "timer-cancel: AC11",
        ),
        ("no number", "DELAY: 10s", "level-unknown"),
    ]
]

RABBITMQ = [
    Row("rabbitmq", rule, f"x-delay: {value}", expected)
    for rule, value, expected in [
        ("milliseconds", "5000", "timer-delay: 5000"),
        ("zero or negative", "0", LEFT_ALONE),
        ("zero or negative", "-5000", LEFT_ALONE),
        (
            "also above 2^32 - 1 ms, where the plugin delivers at once",
            "4294967296",
            "timer-delay: 4294967296",
        ),
        *(
            ("no whole number", value, "time-unreadable")
            for value in ("5s", "1.5", "", "null", "0x00001388")
        ),
    ]
]

AT = "Nats-Schedule: @at 2026-01-01T09:00:00Z"
TARGET = "Nats-Schedule-Target: orders"
SINGLE = f"{AT} | {TARGET}"
TAKEN = "timer-deliver-at: 1767258000000 | timer-topic: orders"
NATS = [
    Row("nats", rule, record, expected)
    for rule, record, expected in [
        ("@at and an RFC 3339 time", SINGLE, TAKEN),
        ("the target topic", SINGLE, TAKEN),
        *(
            (
                "a recurring schedule: cron, @every, @daily",
                f"Nats-Schedule: {pattern} | {TARGET}",
                "header-unsupported",
            )
            for pattern in ("0 0 5 * * *", "@every 5m", "@daily", "@hourly")
        ),
        *(
            (
                "@at without an RFC 3339 time",
                f"Nats-Schedule: {pattern} | {TARGET}",
                "time-unreadable",
            )
            for pattern in ("@at 1767258000", "@at 2026-01-01T09:00:00", "@at ", "", "null")
        ),
        (
            "missing, but there is a target",
            TARGET,
            "time-unreadable",
        ),
        (
            "no topic name",
            f"{AT} | Nats-Schedule-Target: $SCHED.trigger.>",
            "target-illegal",
        ),
        (
            "asks for the newest message of another subject",
            f"{SINGLE} | Nats-Schedule-Source: sensors.cnc",
            "header-unsupported",
        ),
        (
            "a time zone",
            f"{SINGLE} | Nats-Schedule-Time-Zone: Europe/Amsterdam",
            "header-unsupported",
        ),
        (
            "purge: ends a schedule by its subject",
            "Nats-Schedule-Next: purge | Nats-Scheduler: schedules.orders",
            "header-unsupported",
        ),
    ]
]

GROUP = "timer-retry-group: billing"
BACKOFF = "retry_topic-backoff-timestamp"
DUE = "0x019b78e2037b"
FEWER = "with timer-retry-group: the count minus two"
SPRING = [
    Row("spring", rule, record, expected)
    for rule, record, expected in [
        (
            "big-endian epoch milliseconds",
            f"{BACKOFF}: {DUE}",
            f"timer-deliver-at: {int(DUE, 16)}",
        ),
        (FEWER, f"{GROUP} | retry_topic-attempts: 0x00000001", "timer-attempt: 0"),
        (FEWER, f"{GROUP} | retry_topic-attempts: 0x00000002", "timer-attempt: 0"),
        (FEWER, f"{GROUP} | retry_topic-attempts: 0x0000012c", "timer-attempt: 298"),
        (FEWER, f"{GROUP} | retry_topic-attempts: 300", "header-unreadable"),
        (
            "the same for older versions, whose count has one byte",
            f"{GROUP} | retry_topic-attempts: 0xc8",
            "timer-attempt: 198",
        ),
        (
            "without timer-retry-group",
            "timer-topic: orders | retry_topic-attempts: 0x00000003",
            LEFT_ALONE,
        ),
        (
            "with timer-retry-group, whose delay counts",
            f"{GROUP} | {BACKOFF}: {DUE}",
            LEFT_ALONE,
        ),
        *(
            ("a time written as text", f"{BACKOFF}: {value}", "time-unreadable")
            for value in ("1767258000123", "17672580", "0x" + 10 * "00", "", "null")
        ),
    ]
]
ROWS = [*CESIUM, *ETF1, *KARAFKA, *ROCKETMQ, *RABBITMQ, *NATS, *SPRING]
REFUSED = [row for row in ROWS if row.expected in REASONS]


def _sentence(row: Row) -> str:
    return f"{row.alias}: {row.rule}"


@pytest.mark.parametrize("row", ROWS, ids=_sentence)
def test_a_row_of_the_table_holds(row: Row) -> None:
    asked = headers(row.record)
    answer = Translator((row.alias,)).translate(asked, row.key, row.value)
    if isinstance(answer, Rejection):
        assert answer.code == row.expected, answer
    else:
        assert answer == ([*asked, *headers(row.expected)], row.key, row.value)


@pytest.mark.parametrize("row", REFUSED, ids=_sentence)
def test_a_refusal_names_the_foreign_header_in_a_sentence(row: Row) -> None:
    answer = Translator((row.alias,)).translate(headers(row.record), row.key, row.value)
    assert isinstance(answer, Rejection)
    named = {*ALIASES[row.alias].headers, "the record's key"}
    assert any(name in answer.detail for name in named), answer.detail
    assert 20 < len(answer.detail) < 400
