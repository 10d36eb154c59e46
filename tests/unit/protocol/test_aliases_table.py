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
            "a delay in milliseconds after the record's timestamp",
            "cesium-delay-ms: 30000",
            "timer-delay: 30000",
        ),
        (
            "a point in time in epoch milliseconds",
            "cesium-deliver-at: 1767258000123",
            "timer-deliver-at: 1767258000123",
        ),
        (
            "beside a delay the point in time counts and the delay is not looked at",
            "cesium-deliver-at: 1767258000123 | cesium-delay-ms: soon",
            "timer-deliver-at: 1767258000123",
        ),
        *(
            (
                "a sign, a blank, a point or an empty value is refused as cesium refuses it",
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
NO_EPOCH = "a missing, negative or unreadable epoch is refused and does not fire at once"
NO_KEY = "a schedule or a cancel without a key is refused"
ETF1 = [
    Row("etf1", "a point in time in epoch seconds", SCHEDULE, SCHEDULED),
    Row("etf1", "the target topic", SCHEDULE, SCHEDULED),
    Row("etf1", "the key at the target", SCHEDULE, SCHEDULED),
    Row("etf1", "the record's key is the id and the same id replaces", SCHEDULE, SCHEDULED),
    Row("etf1", "an empty value is a value to deliver", SCHEDULE, SCHEDULED, value=b""),
    Row(
        "etf1",
        "without a target key the key at the target is null",
        f"{WHEN} | {WHERE}",
        SCHEDULED.replace("vid1", "null"),
    ),
    Row(
        "etf1",
        "a null value cancels the schedule with the record's key",
        SCHEDULE,
        "timer-cancel: id-1",
        value=None,
    ),
    Row(
        "etf1",
        "a null value without any header cancels too",
        LEFT_ALONE,
        "timer-cancel: id-1",
        value=None,
    ),
    Row(
        "etf1",
        "a null value with one of our own request headers is a value to deliver",
        "timer-topic: orders",
        LEFT_ALONE,
        value=None,
    ),
    Row(
        "etf1",
        "a null value with one of our own request headers is a value to deliver",
        f"{SCHEDULE} | timer-topic: orders",
        SCHEDULED.removeprefix("timer-topic: videos | "),
        value=None,
    ),
    Row("etf1", "a schedule that does not say where is refused", WHEN, "target-missing"),
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
        ("Karafka's epoch counts seconds", KEYED, IDENTIFIED),
        ("Karafka's target topic", KEYED, IDENTIFIED),
        ("Karafka's key at the target", KEYED, IDENTIFIED),
        ("the envelope's key is the id and the same key replaces", KEYED, IDENTIFIED),
        (
            "without Karafka's target key the key at the target is null",
            ENVELOPE,
            IDENTIFIED.replace("user-1", "null"),
        ),
        (
            "Karafka's target partition",
            f"{KEYED} | schedule_target_partition: 2",
            f"{ENVELOPED} | timer-partition: 2 | timer-id: id-1",
        ),
        (
            "a partition key that is the target key asks for nothing more",
            f"{KEYED} | schedule_target_partition_key: user-1",
            IDENTIFIED,
        ),
        (
            "a partition key of its own is refused",
            f"{KEYED} | schedule_target_partition_key: tenant-9",
            "header-unsupported",
        ),
        (
            "a schema version other than 1.0.0 is refused",
            KEYED.replace("1.0.0", "2.0.0"),
            "header-unsupported",
        ),
        *(
            ("another type or none is refused", record, "header-unreadable")
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
            "the type cancel cancels the schedule with the envelope's key",
            "schedule_schema_version: 1.0.0 | schedule_source_type: cancel",
            "timer-cancel: id-1",
        ),
        (
            "the type tombstone does so too",
            KEYED.replace("type: schedule", "type: tombstone"),
            "timer-cancel: id-1",
        ),
        ("a null payload of the type schedule is delivered as null", KEYED, IDENTIFIED),
    ]
]

NOT_POSITIVE = "a level of 0 or less is no delay and other properties count"
RANKS = "the level beats the seconds, they the milliseconds, they the point in time"
THE_SAME = "beside another time the clouds' one must say the same"
UNIQUE = "the unique key is the id of a record that also has a time property"
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
        ("RocketMQ's point in time in epoch milliseconds", MOMENT, AT_MOMENT),
        (RANKS, f"{MOMENT} | TIMER_DELAY_SEC: 5 | DELAY: 4", "timer-level: 4"),
        (RANKS, f"{MOMENT} | TIMER_DELAY_MS: 7 | TIMER_DELAY_SEC: 5", "timer-delay: 5000"),
        (RANKS, f"{MOMENT} | TIMER_DELAY_MS: 7", "timer-delay: 7"),
        (
            "a negative time has passed and fires at once",
            "TIMER_DELIVER_MS: -1",
            "timer-deliver-at: 0",
        ),
        ("the clouds' point in time in epoch milliseconds", CLOUD, AT_MOMENT),
        (THE_SAME, f"{CLOUD} | TIMER_DELIVER_MS: 1767258000124", "time-unreadable"),
        (THE_SAME, f"{CLOUD} | DELAY: 3", "time-unreadable"),
        ("the clouds' point in time in epoch milliseconds", f"{CLOUD} | {MOMENT}", AT_MOMENT),
        (UNIQUE, "TIMER_DELAY_MS: 7 | UNIQ_KEY: AC11", "timer-delay: 7 | timer-id: AC11"),
        (UNIQUE, "UNIQ_KEY: AC11", LEFT_ALONE),
        (
            "a delete cancels the record with that unique key whatever its time",
            f"{MOMENT} | {CLOUD} | TIMER_DEL_UNIQKEY: AC11",
            "timer-cancel: AC11",
        ),
        (
            "a delete that names topic and unique key cancels too",
            "TIMER_DEL_UNIQKEY: orders+AC11",
            "timer-cancel: AC11",
        ),
        ("a level that is no number is refused", "DELAY: 10s", "level-unknown"),
    ]
]

RABBITMQ = [
    Row("rabbitmq", rule, f"x-delay: {value}", expected)
    for rule, value, expected in [
        ("RabbitMQ's delay in milliseconds", "5000", "timer-delay: 5000"),
        ("zero or a negative delay asks for nothing", "0", LEFT_ALONE),
        ("zero or a negative delay asks for nothing", "-5000", LEFT_ALONE),
        (
            "a delay above 2^32 - 1 ms is served, where the plugin delivers at once",
            "4294967296",
            "timer-delay: 4294967296",
        ),
        *(
            ("a delay that is no whole number is refused", value, "time-unreadable")
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
        ("@at and an RFC 3339 time is a point in time", SINGLE, TAKEN),
        ("the target subject is the target topic", SINGLE, TAKEN),
        *(
            (
                "cron, @every and @daily are refused, for recurring schedules are not served",
                f"Nats-Schedule: {pattern} | {TARGET}",
                "header-unsupported",
            )
            for pattern in ("0 0 5 * * *", "@every 5m", "@daily", "@hourly")
        ),
        *(
            (
                "@at and anything but RFC 3339 is refused",
                f"Nats-Schedule: {pattern} | {TARGET}",
                "time-unreadable",
            )
            for pattern in ("@at 1767258000", "@at 2026-01-01T09:00:00", "@at ", "", "null")
        ),
        (
            "a target without a schedule is refused and does not fire at once",
            TARGET,
            "time-unreadable",
        ),
        (
            "a subject that is no topic name is refused",
            f"{AT} | Nats-Schedule-Target: $SCHED.trigger.>",
            "target-illegal",
        ),
        (
            "sampling another subject is refused",
            f"{SINGLE} | Nats-Schedule-Source: sensors.cnc",
            "header-unsupported",
        ),
        (
            "a time zone is refused, for it belongs to recurring schedules",
            f"{SINGLE} | Nats-Schedule-Time-Zone: Europe/Amsterdam",
            "header-unsupported",
        ),
        (
            "ending a schedule by its subject is refused",
            "Nats-Schedule-Next: purge | Nats-Scheduler: schedules.orders",
            "header-unsupported",
        ),
    ]
]

GROUP = "timer-retry-group: billing"
BACKOFF = "retry_topic-backoff-timestamp"
DUE = "0x019b78e2037b"
FEWER = "beside timer-retry-group Spring's count less two is the number of earlier failures"
SPRING = [
    Row("spring", rule, record, expected)
    for rule, record, expected in [
        (
            "the due time as Spring writes it, big-endian epoch milliseconds",
            f"{BACKOFF}: {DUE}",
            f"timer-deliver-at: {int(DUE, 16)}",
        ),
        (FEWER, f"{GROUP} | retry_topic-attempts: 0x00000001", "timer-attempt: 0"),
        (FEWER, f"{GROUP} | retry_topic-attempts: 0x00000002", "timer-attempt: 0"),
        (FEWER, f"{GROUP} | retry_topic-attempts: 0x0000012c", "timer-attempt: 298"),
        (FEWER, f"{GROUP} | retry_topic-attempts: 300", "header-unreadable"),
        (
            "the one-byte count of older versions is read too",
            f"{GROUP} | retry_topic-attempts: 0xc8",
            "timer-attempt: 198",
        ),
        (
            "without timer-retry-group the count asks for nothing",
            "timer-topic: orders | retry_topic-attempts: 0x00000003",
            LEFT_ALONE,
        ),
        (
            "beside timer-retry-group the level decides and not Spring's due time",
            f"{GROUP} | {BACKOFF}: {DUE}",
            LEFT_ALONE,
        ),
        *(
            ("a due time in text is refused", f"{BACKOFF}: {value}", "time-unreadable")
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
