"""What each of the other schedulers' headers asks for, in our own: a function for each table of
docs/aliases.md. rocketmq has two, for what the clouds added must agree with what was there."""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records.header_names import (
    ATTEMPT,
    CANCEL,
    DELIVER_AT,
    ID,
    LEVEL,
    PARTITION,
    RETRY_GROUP,
)
from spark_jobs.requests import error_codes as codes
from spark_jobs.requests.aliases import alias_headers as n
from spark_jobs.requests.aliases.aliased_record import (
    LATEST_MS,
    SECONDS,
    AliasedRecord,
    Translated,
    refusal,
    text_of,
    together,
    translated,
)
from spark_jobs.requests.error_codes import first_of, refused
from spark_jobs.requests.times import rfc_3339_ms

KARAFKA_SERVED: Final = "1.0.0"
NATS_AT: Final = "@at "
SPRING_LONG_BYTES: Final = 8
SPRING_FIRST_RETRY: Final = 2
"""Spring counts deliveries, and writes the number of the next."""
HEXADECIMAL: Final = 16
UNSIGNED_LONG: Final = "decimal(20,0)"


def cesium(record: AliasedRecord) -> Translated:
    """A point in time, or else a delay."""
    is_instant = record.has(n.CESIUM_DELIVER_AT)
    return together(
        record.due_at(n.CESIUM_DELIVER_AT).where(is_instant),
        record.due_after(n.CESIUM_DELAY_MS).where(~is_instant),
    )


def etf1(record: AliasedRecord) -> Translated:
    """A schedule, or without a value the end of one."""
    schedule = together(
        record.target(n.ETF1_TOPIC),
        record.due_at(n.ETF1_EPOCH, SECONDS),
        record.target_key(n.ETF1_KEY),
        record.identity(),
    )
    return together(record.cancel().where(record.is_deletion), schedule.where(~record.is_deletion))


def karafka(record: AliasedRecord) -> Translated:
    """A schedule, or the end of one; of schema 1.0.0 alone."""
    kind = record.text(n.KARAFKA_TYPE)
    is_served = ~record.has(n.KARAFKA_VERSION) | (record.text(n.KARAFKA_VERSION) == KARAFKA_SERVED)
    ends = is_served & kind.isin("cancel", "tombstone")
    schedules = is_served & (kind == "schedule")
    return together(
        refusal(codes.HEADER_UNSUPPORTED).where(~is_served),
        refusal(codes.HEADER_UNREADABLE).where(~ends & ~schedules),
        record.cancel().where(ends),
        _karafka_schedule(record).where(schedules),
    )


def _karafka_schedule(record: AliasedRecord) -> Translated:
    """A key of its own for the partition is refused: our partitions follow the target's key."""
    is_its_own = ~record.raw(n.KARAFKA_PARTITION_KEY).eqNullSafe(record.raw(n.KARAFKA_KEY))
    is_asked = record.has(n.KARAFKA_PARTITION_KEY) & ~record.has(PARTITION)
    return together(
        refusal(codes.HEADER_UNSUPPORTED).where(is_asked & is_its_own),
        record.target(n.KARAFKA_TOPIC),
        record.due_at(n.KARAFKA_EPOCH, SECONDS),
        record.target_key(n.KARAFKA_KEY),
        record.target_partition(n.KARAFKA_PARTITION),
        record.identity(),
    )


def rocketmq(record: AliasedRecord) -> Translated:
    """A delete, or a time with an id: the level beats the seconds, and so on."""
    is_delete = record.has(n.ROCKETMQ_DELETE)
    unique_key = record.raw(n.ROCKETMQ_UNIQUE_KEY)
    has_identity = ~record.has(ID) & (f.octet_length(unique_key) > 0)
    identity = translated(ID, unique_key).where(f.coalesce(has_identity, f.lit(False)))
    schedule = together(_rocketmq_time(record).where(record.needs_time), identity)
    return together(_rocketmq_delete(record).where(is_delete), schedule.where(~is_delete))


def rocketmq_cloud(record: AliasedRecord) -> Translated:
    """The clouds' point in time."""
    is_asked = record.has(n.ROCKETMQ_CLOUD_MS) & ~record.has(n.ROCKETMQ_DELETE)
    return record.due_at(n.ROCKETMQ_CLOUD_MS, signed=True).where(is_asked)


def _rocketmq_time(record: AliasedRecord) -> Translated:
    level = record.whole(n.ROCKETMQ_LEVEL, signed=True)
    has_level = record.has(n.ROCKETMQ_LEVEL) & (level.isNull() | (level > 0))
    has_seconds, has_ms = record.has(n.ROCKETMQ_DELAY_SEC), record.has(n.ROCKETMQ_DELAY_MS)
    has_instant = record.has(n.ROCKETMQ_DELIVER_MS)
    by_level = translated(LEVEL, text_of(level), refused(codes.LEVEL_UNKNOWN, level.isNull()))
    by_seconds = record.due_after(n.ROCKETMQ_DELAY_SEC, SECONDS, signed=True)
    by_ms = record.due_after(n.ROCKETMQ_DELAY_MS, signed=True)
    by_instant = record.due_at(n.ROCKETMQ_DELIVER_MS, signed=True)
    return together(
        by_level.where(has_level),
        by_seconds.where(~has_level & has_seconds),
        by_ms.where(~has_level & ~has_seconds & has_ms),
        by_instant.where(~has_level & ~has_seconds & ~has_ms & has_instant),
    )


def _rocketmq_delete(record: AliasedRecord) -> Translated:
    """The unique key, perhaps behind the topic and a plus sign."""
    named = f.substring_index(record.text(n.ROCKETMQ_DELETE), "+", -1)
    return translated(CANCEL, named, refused(codes.HEADER_UNREADABLE, named == ""))


def rabbitmq(record: AliasedRecord) -> Translated:
    """A delay; zero or less asks for nothing."""
    number = record.whole(n.RABBITMQ_DELAY_MS, signed=True)
    parts = number.isNull() | (number > 0)
    return record.due_after(n.RABBITMQ_DELAY_MS, signed=True).where(parts)


def nats(record: AliasedRecord) -> Translated:
    """`@at` and the target; all that belongs to recurring schedules is refused."""
    is_purge = record.has(n.NATS_NEXT) & (record.text(n.NATS_NEXT) == "purge")
    is_unserved = record.has_any((n.NATS_SOURCE, n.NATS_TIME_ZONE))
    schedule = together(
        refusal(codes.HEADER_UNSUPPORTED).where(is_unserved),
        _nats_time(record).where(record.needs_time),
        record.target(n.NATS_TARGET),
    )
    return together(
        refusal(codes.HEADER_UNSUPPORTED).where(is_purge),
        schedule.where(record.has_any((n.NATS_SCHEDULE, n.NATS_TARGET))),
    )


def _nats_time(record: AliasedRecord) -> Translated:
    text = record.text(n.NATS_SCHEDULE)
    due_ms = rfc_3339_ms(f.substr(text, f.lit(len(NATS_AT) + 1)))
    code = first_of(
        refused(codes.TIME_UNREADABLE, text == ""),
        refused(codes.HEADER_UNSUPPORTED, ~text.startswith(NATS_AT)),
        refused(codes.TIME_UNREADABLE, due_ms.isNull()),
    )
    return translated(DELIVER_AT, text_of(f.greatest(due_ms, f.lit(0))), code)


def spring(record: AliasedRecord) -> Translated:
    """The due, and beside a retry group of ours the count of failures: both in big-endian bytes."""
    is_retry = record.has(RETRY_GROUP) & ~record.has(ATTEMPT) & record.has(n.SPRING_ATTEMPTS)
    return together(
        _spring_due(record).where(record.needs_time & record.has(n.SPRING_DUE)),
        _spring_attempt(record).where(is_retry),
    )


def _spring_due(record: AliasedRecord) -> Translated:
    size, due = _bytes_of(record, n.SPRING_DUE), f.hex(record.raw(n.SPRING_DUE))
    is_negative = due >= "8"
    due_ms = f.when(is_negative, f.lit(0).cast(UNSIGNED_LONG)).otherwise(_unsigned(due))
    is_bad = ~size.between(1, SPRING_LONG_BYTES)
    code = first_of(
        refused(codes.TIME_UNREADABLE, is_bad),
        refused(codes.TIME_UNREADABLE, due_ms > LATEST_MS),
    )
    return translated(DELIVER_AT, f.when(~is_bad, text_of(due_ms)), code)


def _spring_attempt(record: AliasedRecord) -> Translated:
    size, count = _bytes_of(record, n.SPRING_ATTEMPTS), f.hex(record.raw(n.SPRING_ATTEMPTS))
    is_bad = ~size.isin(1, 4) | ((size == 4) & (count >= "8"))
    failures = f.greatest(_unsigned(count) - SPRING_FIRST_RETRY, f.lit(0).cast(UNSIGNED_LONG))
    return translated(
        ATTEMPT, f.when(~is_bad, text_of(failures)), refused(codes.HEADER_UNREADABLE, is_bad)
    )


def _bytes_of(record: AliasedRecord, name: str) -> Column:
    return f.coalesce(f.octet_length(record.raw(name)), f.lit(0))


def _unsigned(hexadecimal: Column) -> Column:
    """At most eight bytes as a number."""
    short = f.substring(hexadecimal, 1, 2 * SPRING_LONG_BYTES)
    return f.conv(short, HEXADECIMAL, 10).try_cast(UNSIGNED_LONG)


READERS: Final[dict[str, tuple[Callable[[AliasedRecord], Translated], ...]]] = {
    "cesium": (cesium,),
    "etf1": (etf1,),
    "karafka": (karafka,),
    "rocketmq": (rocketmq, rocketmq_cloud),
    "rabbitmq": (rabbitmq,),
    "nats": (nats,),
    "spring": (spring,),
}
"""By alias."""
