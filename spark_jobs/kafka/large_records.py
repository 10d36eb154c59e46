"""Records that are too large for Spark's memory. The driver reads them in its place.

A batch of 400 kB can hold a record of hundreds of megabytes, of which Spark makes several copies.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from typing import Any, Final, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, TopicPartition

from spark_jobs.kafka.broker import ASK_TIMEOUT_S, UNREADABLE_BATCH, Broker, Place
from spark_jobs.kafka.positions import Range
from spark_jobs.runtime.errors import RangeRefused

LARGE_BYTES: Final = 32_000_000
PART_BYTES: Final = 1_000_000
"""A larger key, value or header of a large record is replaced by its hash."""
MOST_LARGE: Final = 50
"""Spark reads the ranges between them one after the other, each as a table of its own."""
Row = Mapping[str, Any]
Headers = Sequence[tuple[str, bytes | None]]


class LargeRecords:
    """The large records among those that an audit reads. None is known before `search`."""

    def __init__(self) -> None:
        self._found: dict[Place, dict[int, Row]] = {}
        self._read: list[Range] = []

    def note_read(self, ranges: Iterable[Range]) -> None:
        """Note that Spark is about to read these ranges. `search` looks through them."""
        self._read += ranges

    def offsets(self, one: Range) -> list[int]:
        """Return the offsets of the known large records in this range, in order."""
        found = self._found.get((one.topic, one.partition), {})
        return sorted(offset for offset in found if one.start <= offset < one.end)

    def rows(self, one: Range) -> list[Row]:
        """Return the known large records in this range: RECORDS, binary columns in base 64."""
        return [self._found[one.topic, one.partition][offset] for offset in self.offsets(one)]

    def search(self, broker: Broker, hides_keys_of: Iterable[str]) -> bool:
        """Search the noted ranges. Return whether a large record was found that was not known.

        hides_keys_of: in these topics large keys are replaced, too. In others the key says whether
        a record lies in the right partition. Raises `RangeRefused` beyond MOST_LARGE.
        """
        known = self._count()
        ranges, self._read = self._read, []
        with closing(broker.consumer("kafka-delay-proxy-audit")) as consumer:
            for one in ranges:
                place = one.topic, one.partition
                consumer.assign([TopicPartition(*place, one.start)])
                for message in _messages(broker, consumer, one.end):
                    row = _large_row(message, hides_key=one.topic in hides_keys_of)
                    if row:
                        self._found.setdefault(place, {})[row["offset"]] = row
                        self._check_bound()
        return self._count() > known

    def _count(self) -> int:
        return sum(map(len, self._found.values()))

    def _check_bound(self) -> None:
        if self._count() > MOST_LARGE:
            first = min((*place, offset) for place in self._found for offset in self._found[place])
            raise RangeRefused(
                f"More than {MOST_LARGE} records take over {LARGE_BYTES // 1_000_000} MB each, "
                "and Spark ran out of memory with them. The first is {}/{}/{}.".format(*first),
                "Give more with --driver-memory, or leave these records out with --offsets.",
            )


def _messages(broker: Broker, consumer: Any, end: int) -> Iterator[Message]:
    """Yield the records of the assigned partition below `end`."""
    while True:
        message = consumer.poll(ASK_TIMEOUT_S)
        if message is None:
            raise broker.explained(KafkaError(KafkaError._TIMED_OUT))
        error = message.error()
        is_behind = error is not None and error.code() in UNREADABLE_BATCH
        if error is not None and not is_behind and error.code() != KafkaError._PARTITION_EOF:
            raise broker.explained(error)
        if error is not None or message.offset() >= end:
            return
        yield message


def _large_row(message: Message, *, hides_key: bool) -> Row | None:
    """Return RECORDS of a large record, with a hash in place of each large part.

    Return None for a small record. Return None if its key may not be hidden, or if a header's name
    is not UTF-8.
    """
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
    """Return the part in base 64, or the hash of a large part."""
    if part is None:
        return None
    return b64encode(part if len(part) <= PART_BYTES else sha256(part).digest()).decode()
