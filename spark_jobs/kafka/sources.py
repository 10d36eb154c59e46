"""Topics as frames, and records that are too large for Spark."""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from itertools import zip_longest
from typing import Any, Final, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.kafka.broker import Broker, KafkaSettings, Place
from spark_jobs.kafka.snapshot import OffsetRange, Range, Unreadable
from spark_jobs.runtime.errors import RangeRefused
from spark_jobs.runtime.frames import Schema, conformed, local_rows

# The driver reads records that are too large for Spark's memory. A batch of 400 kB can hold a
# record of hundreds of megabytes, and Spark makes several copies.

LARGE_BYTES: Final = 32_000_000
PART_BYTES: Final = 1_000_000
"""A larger key, value or header of a large record is replaced by its hash."""
MOST_LARGE: Final = 50
"""More would take too long, because Spark reads the ranges between them one by one."""
Row = Mapping[str, Any]
Headers = Sequence[tuple[str, bytes | None]]


class LargeRecords:
    """The large records in an audit. `search` finds them. Before a search none is known."""

    def __init__(self) -> None:
        self._found: dict[tuple[Place, int], Row] = {}
        self._read: list[Range] = []

    def note_read(self, ranges: Iterable[Range]) -> None:
        self._read += ranges

    def offsets(self, one: Range) -> list[int]:
        known = (offset for place, offset in self._found if place == one.place)
        return sorted(offset for offset in known if one.start <= offset < one.end)

    def rows(self, one: Range) -> list[Row]:
        """Return known large records in this range, as RECORDS with binary columns in base 64."""
        return [self._found[one.place, offset] for offset in self.offsets(one)]

    def search(self, broker: Broker, hides_keys_of: Iterable[str]) -> bool:
        """Search the noted ranges. Return whether a new large record was found.
        `hides_keys_of`: topics whose large keys are replaced, too. In other topics the key is
        needed to check the partition. Raises `RangeRefused` if there are more than MOST_LARGE.
        """
        known = len(self._found)
        ranges, self._read = self._read, []
        for one in ranges:
            for place, message in broker.messages({one.place: one.start}, take_unreadable=True):
                if message.error() is not None or (message.offset() or 0) >= one.end:
                    break
                if row := _large_row(message, hides_key=one.topic in hides_keys_of):
                    self._found[place, row["offset"]] = row
                if len(self._found) > MOST_LARGE:
                    (topic, partition), offset = min(self._found)
                    raise RangeRefused(
                        f"More than {MOST_LARGE} records have over {LARGE_BYTES // 1_000_000} MB "
                        "each, and Spark ran out of memory with them. The first is "
                        f"{topic}/{partition}/{offset}.",
                        "Give more with --driver-memory, or leave these records out with "
                        "--offsets.",
                    )
        return len(self._found) > known


def _large_row(message: Message, *, hides_key: bool) -> Row | None:
    """Return a row of RECORDS for a large record, with hashes for large parts; else None."""
    try:
        headers = cast(Headers, message.headers() or [])
    except SystemError:  # a name is not UTF-8
        return None
    key, value = message.key() or b"", message.value()
    content_bytes = len(key) + len(value or b"")
    all_bytes = content_bytes + sum(len(header or b"") for _name, header in headers)
    if all_bytes <= LARGE_BYTES or (len(key) > PART_BYTES and not hides_key):
        return None
    kind, timestamp_ms = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms,
        "key": _shown(message.key()),
        "value": _shown(value),
        "headers": [{"key": name, "value": _shown(header)} for name, header in headers],
        "is_attested": kind == TIMESTAMP_LOG_APPEND_TIME,
        "large_bytes": content_bytes,
    }


def _shown(part: bytes | None) -> str | None:
    if part is None:
        return None
    return b64encode(part if len(part) <= PART_BYTES else sha256(part).digest()).decode()


# Frames of the committed records in given offset ranges. No record is skipped silently.

RECORDS: Final[Schema] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp_ms": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "is_attested": "boolean",
    "large_bytes": "bigint",
}
"""A record of a topic.
`timestamp_ms`: -1 if it has none. `headers`: null only for a skipped record. `is_attested`: the
timestamp is the broker's own (LogAppendTime). `large_bytes`: the size of key and value if they were
replaced by hashes, else null.
"""

COMMITTED: Final = {
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "20",
    "kafka.max.poll.records": "10000",
}
"""Settings of Spark's reader.
If a range ends with a transaction's marker, the reader asks for one record more. By default the
broker then waits up to 500 ms for this record. Before each poll Spark asks the broker twice for
the end of the log. To save polls, each poll returns up to 10,000 records instead of 500.
"""

BATCH_BY_BATCH: Final = {"kafka.max.partition.fetch.bytes": "1", "kafka.fetch.max.bytes": "1"}
"""With these settings the broker answers with one record batch at a time.
If a range ends with a transaction's marker, Spark reads on. It then gets no further batch that it
would have to unpack.
"""
ONE_BY_ONE: Final = {**BATCH_BY_BATCH, "kafka.max.poll.records": "1"}
"""Settings for a batch that holds a large record and other records.
Spark reads the records before the large one, and does not unpack the large one.
"""
NEAR: Final = 20_000
"""This many offsets before an unreadable batch or a large record are read batch by batch."""
READABLE: Final = Unreadable()


def records(
    spark: SparkSession,
    settings: KafkaSettings,
    ranges: Iterable[Range],
    unreadable: Unreadable = READABLE,
    large: LargeRecords | None = None,
) -> DataFrame:
    """Return the records in the ranges, as RECORDS. A skipped record has only its place.
    `unreadable`: unreadable batches of the ranges' topic. `large`: records that Spark does not
    read. Records of aborted transactions are left out. If retention deletes a part of a range
    before it is read, the job fails (`errors.explained`).
    """
    asked = [one for one in ranges if one.start < one.end]
    if not asked:
        return local_rows(spark, [], RECORDS)
    large = large or LargeRecords()
    far, near = _apart(asked, unreadable, large)
    large.note_read([*far, *near])
    rows = [row for one in asked for row in large.rows(one)]
    frames = [
        _read(spark, settings, held, options)
        for pieces, options in ((far, {}), (near, ONE_BY_ONE if rows else BATCH_BY_BATCH))
        for held in _one_of_each_partition(pieces)
    ]
    if rows:
        frames.append(local_rows(spark, rows, RECORDS))
    if unreadable.skipped:
        frames.append(_skipped(spark, asked, unreadable))
    return reduce(DataFrame.unionByName, frames)


def _apart(
    ranges: Iterable[Range], unreadable: Unreadable, large: LargeRecords
) -> tuple[list[Range], list[Range]]:
    """Cut out skipped offsets and large records. Return the pieces far from them and the near ones.
    The NEAR offsets before a skipped batch or large record are near, all others are far.
    """
    far, near = list[Range](), list[Range]()
    for one in ranges:
        offsets = large.offsets(one)
        bases = [*unreadable.bases(one.partition), *offsets]
        skipped = unreadable.skipped.get(one.partition, ())
        for piece in _left(one, [*skipped, *((offset, offset + 1) for offset in offsets)]):
            first = min((base for base in bases if base >= piece.end), default=piece.end + NEAR)
            at = max(piece.start, min(piece.end, first - NEAR))
            far.append(piece._replace(end=at))
            near.append(piece._replace(start=at))
    return [one for one in far if one.start < one.end], [one for one in near if one.start < one.end]


def _left(one: Range, cut: Iterable[OffsetRange]) -> Iterator[Range]:
    start = one.start
    for base, end in sorted(cut):
        if start < min(base, one.end):
            yield one._replace(start=start, end=min(base, one.end))
        start = max(start, end)
    if start < one.end:
        yield one._replace(start=start)


def _one_of_each_partition(pieces: Iterable[Range]) -> list[list[Range]]:
    """Return groups of pieces, with at most one piece of each partition.
    In one query Spark reads only one range of a partition.
    """
    by_place: dict[Place, list[Range]] = {}
    for piece in pieces:
        by_place.setdefault(piece.place, []).append(piece)
    return [[piece for piece in held if piece] for held in zip_longest(*by_place.values())]


def _skipped(spark: SparkSession, ranges: Iterable[Range], unreadable: Unreadable) -> DataFrame:
    spans = {"topic": "string", "partition": "int", "first": "bigint", "last": "bigint"}
    rows = [
        dict(zip(spans, (*one.place, max(base, one.start), min(end, one.end) - 1), strict=True))
        for one in ranges
        for base, end in unreadable.skipped.get(one.partition, ())
        if max(base, one.start) < min(end, one.end)
    ]
    nothing = dict.fromkeys(RECORDS, "NULL") | {"timestamp_ms": "-1", "is_attested": "false"}
    places = {"topic": "topic", "partition": "partition", "offset": "offset"}
    found = local_rows(spark, rows, spans)
    each = found.selectExpr("*", "explode(sequence(first, last)) AS offset")
    return conformed(each, RECORDS, nothing | places)


def _read(
    spark: SparkSession, settings: KafkaSettings, ranges: Sequence[Range], more: Mapping[str, str]
) -> DataFrame:
    """Read the ranges, at most one of each partition."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for topic, partition, start, end in ranges:
        starts.setdefault(topic, {})[str(partition)] = start
        ends.setdefault(topic, {})[str(partition)] = end
    options = {
        "assign": json.dumps({topic: [*map(int, held)] for topic, held in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "minPartitions": str(spark.sparkContext.defaultParallelism),
        **COMMITTED,
        **more,
        **{f"kafka.{name}": value for name, value in settings.java.items()},
    }
    columns = {
        "timestamp_ms": "unix_millis(timestamp)",
        "is_attested": "timestampType = 1",
        "headers": f"coalesce(headers, CAST(array() AS {RECORDS['headers']}))",
        "large_bytes": "NULL",
    }
    return conformed(spark.read.format("kafka").options(**options).load(), RECORDS, columns)
