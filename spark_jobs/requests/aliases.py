"""Headers of other schedulers, read as ours."""

from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records import headers as names
from spark_jobs.records.hashes import letter_hash
from spark_jobs.records.headers import (
    ATTEMPT,
    CANCEL,
    DELIVER_AT,
    HOP_FROM,
    ID,
    LEVEL,
    PARTITION,
    RECALL,
    RETRY_GROUP,
    TIMES,
    TOPIC,
    RequestHeaders,
    by_name,
    is_legal,
)
from spark_jobs.requests import alias_headers as n
from spark_jobs.requests import error_codes as codes
from spark_jobs.requests.alias_headers import ALIAS_HEADERS
from spark_jobs.requests.error_codes import first_of, refused
from spark_jobs.requests.targets import LARGEST_PARTITION
from spark_jobs.requests.times import rfc_3339_ms

# A record with headers of another scheduler, and what these are in our own headers.
#
# Where one of our own headers has decided a part of the request, the other scheduler's header for
# it is not looked at.

MILLISECONDS: Final = 1
SECONDS: Final = 1_000
LATEST_MS: Final = 10**15 - 1
WHOLE: Final = r"\A[0-9]{1,19}\z"
SIGNED_WHOLE: Final = r"\A[+-]?[0-9]{1,19}\z"
BLANK: Final = r"\A[ \t\n\r\x0B\f]*\z"
PIECES: Final = "array<struct<key:string,value:binary>>"
DECIMAL: Final = "decimal(38,0)"


class Translated(NamedTuple):
    """What is asked for: why it is refused (null: it is not), and headers of ours to be added."""

    code: Column
    pieces: Column

    def where(self, condition: Column) -> "Translated":
        """This, only where the condition holds."""
        pieces = f.when(condition, self.pieces).otherwise(nothing())
        return Translated(f.when(condition, self.code), pieces)


def nothing() -> Column:
    """No headers."""
    return f.array().cast(PIECES)


def translated(name: str, value: Column, code: Column | None = None) -> Translated:
    """One header of ours with this value (binary or text), unless a code refuses it."""
    piece = f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
    return Translated(
        f.lit(None).cast("string") if code is None else code, f.array(piece).cast(PIECES)
    )


def refusal(code: str) -> Translated:
    """Nothing but a refusal."""
    return Translated(f.lit(code), nothing())


def together(*parts: Translated) -> Translated:
    """All of these; of their refusals the first."""
    return Translated(first_of(*(a.code for a in parts)), f.concat(*(a.pieces for a in parts)))


def text_of(number: Column) -> Column:
    """A whole number as our own headers carry it."""
    return number.cast(DECIMAL).cast("string")


class AliasedRecord(RequestHeaders):
    """headers: a map of each name to its last header. key, value: the record's."""

    def __init__(self, headers: Column, key: Column, value: Column) -> None:
        super().__init__(headers)
        self.key, self._value = key, value

    def text(self, name: str) -> Column:
        """The value as text; empty where it is null."""
        return f.coalesce(super().text(name), f.lit(""))

    @property
    def needs_time(self) -> Column:
        """Whether our own headers leave the time open."""
        return ~self.has_any((*names.TIMES, names.RETRY_GROUP))

    @property
    def is_deletion(self) -> Column:
        """Whether etf1 takes it for the end of a schedule: no value, and no request of ours."""
        ours = f.filter(f.map_keys(self._column), lambda name: name.startswith(names.PREFIX))
        return self._value.isNull() & ~f.exists(ours, lambda name: ~name.isin(*names.STAMPS))

    def whole(self, name: str, *, signed: bool = False) -> Column:
        """The whole number that a header says: decimal; null where it says none."""
        text = self.text(name)
        pattern = SIGNED_WHOLE if signed else WHOLE
        return f.when(text.rlike(pattern), text.try_cast(DECIMAL))

    def target(self, name: str) -> Translated:
        """The target topic, which must be named and legal."""
        raw = self.raw(name)
        code = first_of(
            refused(codes.TARGET_MISSING, raw.isNull()),
            refused(codes.TARGET_ILLEGAL, ~is_legal(self.text(name))),
        )
        return translated(names.TOPIC, raw, code).where(
            ~self.has_any((names.TOPIC, names.RETRY_GROUP, names.TRANSACTION))
        )

    def due_at(self, name: str, unit_ms: int = MILLISECONDS, *, signed: bool = False) -> Translated:
        """A point in time, in units since 1970."""
        return self._time(names.DELIVER_AT, name, unit_ms, signed=signed)

    def due_after(
        self, name: str, unit_ms: int = MILLISECONDS, *, signed: bool = False
    ) -> Translated:
        """A delay, in units."""
        return self._time(names.DELAY, name, unit_ms, signed=signed)

    def target_key(self, name: str) -> Translated:
        """The key at the target; null without the header."""
        return translated(names.KEY, self.raw(name)).where(~self.has(names.KEY))

    def target_partition(self, name: str) -> Translated:
        """The partition, if the header is there."""
        number = self.whole(name)
        is_bad = number.isNull() | (number > LARGEST_PARTITION)
        partition = translated(
            names.PARTITION, text_of(number), refused(codes.PARTITION_BAD, is_bad)
        )
        return partition.where(self.has(name) & ~self.has(names.PARTITION))

    def identity(self) -> Translated:
        """The record's key as its id."""
        return translated(names.ID, self.key, self._no_key()).where(~self.has(names.ID))

    def cancel(self) -> Translated:
        """The record's key as the id of what is to be cancelled."""
        return translated(names.CANCEL, self.key, self._no_key())

    def _time(self, ours: str, name: str, unit_ms: int, *, signed: bool) -> Translated:
        """What lies before zero has passed."""
        length_ms = f.greatest(self.whole(name, signed=signed), f.lit(0).cast(DECIMAL)) * unit_ms
        is_bad = self.whole(name, signed=signed).isNull() | (length_ms > LATEST_MS)
        return translated(ours, text_of(length_ms), refused(codes.TIME_UNREADABLE, is_bad)).where(
            self.needs_time
        )

    def _no_key(self) -> Column:
        is_blank = self.key.isNull() | self.key.cast("string").rlike(BLANK)
        return refused(codes.HEADER_UNREADABLE, is_blank)


# What each of the other schedulers' headers asks for, in our own: a function for each table of
# docs/aliases.md. rocketmq has two, for what the clouds added must agree with what was there.

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


# Other schedulers' headers (docs/aliases.md), translated by column expressions.
#
# A record with such headers gets our own ones that mean the same, behind its own; from then on it
# is read like any other. Only policies that name aliases cost anything.

DELETING = "etf1"
"""The alias that takes a record without value and without any request for a cancel."""
TIME = "time"
UNCHANGED = (
    *("partition", "offset", "timestamp_ms", "key", "value", "large_bytes"),
    *("is_blurred", "policy"),
)


def translation(named: Collection[str], policy: Column) -> list[list[Column | str]]:
    """The selects that add to a record's headers what these aliases ask for, if its policy (POLICY)
    names them, too.

    They add alias_code, why a record is refused, and raw_letter_hash, that of the record as it
    came, where it differs.
    """
    aliases = tuple(name for name in ALIAS_HEADERS if name in named)
    if not aliases:
        return [["*", _null("string", "alias_code"), _null("bigint", "raw_letter_hash")]]
    headers, key, value = f.col("headers"), f.col("key"), f.col("value")
    record = AliasedRecord(f.col("by_name"), key, value)
    counts = {alias: _counts(alias, policy) for alias in ALIAS_HEADERS}
    request, pieces = f.col("translated"), f.col("translated.pieces")
    translated = f.when(f.col("is_aliased"), _translated(record, aliases, counts))
    code = first_of(request["code"], _contradiction(pieces))
    added = f.when(f.col("alias_code").isNull(), f.array_distinct(pieces)).otherwise(nothing())
    has_more = f.size(pieces) > 0
    return [
        ["*", by_name(headers).alias("by_name")],
        ["*", _is_aliased(record, aliases, counts, policy).alias("is_aliased")],
        ["*", translated.alias("translated")],
        ["*", f.when(f.col("is_aliased"), code).alias("alias_code")],
        [
            *UNCHANGED,
            "alias_code",
            f.when(has_more, letter_hash(key, headers)).alias("raw_letter_hash"),
            f.when(has_more, f.concat(headers, added)).otherwise(headers).alias("headers"),
        ],
    ]


def _null(kind: str, name: str) -> Column:
    return f.lit(None).cast(kind).alias(name)


def _is_aliased(
    record: AliasedRecord, aliases: tuple[str, ...], counts: Mapping[str, Column], policy: Column
) -> Column:
    """Our own cancel or recall decides everything, and what the proxy wrote itself has our own
    headers."""
    is_recall = record.has_any((RECALL,)) & policy["recalls_in"].isNotNull()
    parts = reduce(or_, (_is_of(record, alias, counts) for alias in aliases))
    deletes = record.is_deletion & counts[DELETING]
    return (parts | deletes) & ~record.has_any((CANCEL, HOP_FROM)) & ~is_recall


def _is_of(record: AliasedRecord, alias: str, counts: Mapping[str, Column]) -> Column:
    return counts[alias] & record.has_any(ALIAS_HEADERS[alias].triggers)


def _counts(alias: str, policy: Column) -> Column:
    """Whether the policy names the alias."""
    return f.coalesce(f.array_contains(policy["aliases"], alias), f.lit(False))


def _translated(
    record: AliasedRecord, aliases: tuple[str, ...], counts: Mapping[str, Column]
) -> Column:
    """What all aliases ask for together: struct of code and pieces."""
    is_of = {alias: _is_of(record, alias, counts) for alias in aliases}
    parts = [read(record).where(is_of[alias]) for alias in aliases for read in READERS[alias]]
    deletes = ~reduce(or_, is_of.values()) & record.is_deletion & counts[DELETING]
    request = together(*parts, record.cancel().where(deletes))
    return f.struct(request.code.alias("code"), request.pieces.alias("pieces"))


def _contradiction(pieces: Column) -> Column:
    """The code of the first piece that contradicts one before it, or a cancel beside anything."""
    contradicting = f.filter(
        pieces,
        lambda piece, number: f.exists(
            f.slice(pieces, 1, number),
            lambda before: (_about(before) == _about(piece)) & ~before.eqNullSafe(piece),
        ),
    )
    about = _about(f.get(contradicting, f.lit(0)))
    subjects = f.array_distinct(f.transform(pieces, _about))
    cancels_and_more = f.array_contains(subjects, CANCEL) & (f.size(subjects) > 1)
    return first_of(
        refused(codes.TIME_UNREADABLE, about == TIME),
        refused(codes.TARGET_ILLEGAL, about == TOPIC),
        refused(codes.PARTITION_BAD, about == PARTITION),
        refused(codes.HEADER_UNREADABLE, about.isNotNull() | cancels_and_more),
    )


def _about(piece: Column) -> Column:
    """What a piece speaks of: all times are one matter."""
    return f.when(piece["key"].isin(*TIMES), f.lit(TIME)).otherwise(piece["key"])
