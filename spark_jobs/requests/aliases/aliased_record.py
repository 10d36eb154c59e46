"""A record with headers of another scheduler, and what these are in our own headers.

Where one of our own headers has decided a part of the request, the other scheduler's header for it
is not looked at.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from spark_jobs.records import header_names as names
from spark_jobs.records.headers import RequestHeaders
from spark_jobs.records.topic_names import is_legal
from spark_jobs.requests import error_codes as codes
from spark_jobs.requests.error_codes import first_of, refused
from spark_jobs.requests.targets import LARGEST_PARTITION

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
