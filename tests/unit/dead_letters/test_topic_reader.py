"""Ranges of a topic are read completely, and no further."""

from functools import partial
from itertools import count
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from proxy.kafka.reader import RANGE_SILENT_AT_MOST_S, TopicReader
from tests.support.simulation.stand_in import INGRESS, StandInKafka, StandInReader


def reader(kafka: StandInKafka, **more: Any) -> TopicReader:
    return TopicReader(cast(Any, partial(StandInReader, kafka)), INGRESS, [0], **more)


def written(records: int, missing: set[int] | None = None) -> StandInKafka:
    kafka = StandInKafka(partitions=1)
    for offset in range(records):
        kafka.append(INGRESS, 0, value=b"%d" % offset).is_missing = offset in (missing or set())
    return kafka


def offsets(kafka: StandInKafka, span: range) -> list[int]:
    return [message.offset() for message in reader(kafka).records(0, span)]


def test_stretch_is_read_from_its_first_to_its_last_record() -> None:
    assert offsets(written(20), range(20)) == list(range(20))
    assert offsets(written(20), range(5, 12)) == list(range(5, 12))


def test_nothing_is_read_of_an_empty_stretch() -> None:
    assert offsets(written(20), range(7, 7)) == []


def test_stretch_that_ends_in_a_gap_ends_all_the_same() -> None:
    """Transaction markers and compaction leave gaps, also at the end of the log."""
    assert offsets(written(20, {9, 10}), range(5, 10)) == [5, 6, 7, 8]
    assert offsets(written(20, {18, 19}), range(15, 20)) == [15, 16, 17]


def test_spans_are_from_the_first_record_kept_to_the_end() -> None:
    kafka = written(20)
    kafka.log_starts[0] = 3
    assert reader(kafka).spans() == {0: range(3, 20)}


def test_silence_is_an_error_after_a_while() -> None:
    ticks = count(step=1.0)
    silent = reader(written(5), now_s=lambda: next(ticks))
    with pytest.raises(KafkaException, match="no record came in time"):
        list(silent.records(0, range(9)))
    assert next(ticks) > RANGE_SILENT_AT_MOST_S
