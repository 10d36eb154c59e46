"""Ingress records found by offset. Deleted records are told from late ones."""

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from proxy.kafka.reader import SILENT_AT_MOST_S, IngressLookup
from proxy.kafka.unreadable import SkippedRanges
from tests.support.simulation.stand_in import INGRESS, StandInKafka, StandInReader

RECORDS = 100


class Library:
    """A hundred ingress records, and a lookup that notes its calls."""

    def __init__(self) -> None:
        self.kafka = StandInKafka(1)
        for number in range(RECORDS):
            self.kafka.append(INGRESS, 0, value=b"%d" % number)
        self.readers: list[StandInReader] = []
        self.jumps: list[int] = []
        self.now_s = self.tick_s = 0.0
        self.beats = 0
        self.skipped = SkippedRanges()
        self.lookup = IngressLookup(
            self._reader, INGRESS, self._heartbeat, self._tick, self.skipped
        )

    def find(self, *offsets: int, gap: int = 5) -> list[int]:
        found = self.lookup.read(0, offsets, gap)
        assert all(record.value() == b"%d" % offset for offset, record in found.items())
        return list(found)

    def _tick(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def _reader(self) -> Any:
        self.readers.append(StandInReader(self.kafka, self.jumps))
        return self.readers[-1]

    def _heartbeat(self) -> None:
        self.beats += 1
        self.now_s += 1


@pytest.fixture
def library() -> Library:
    return Library()


def test_small_gaps_are_read_through_and_large_ones_jumped(library: Library) -> None:
    assert library.find(3, 4, 10, 50, 51, 99) == [3, 4, 10, 50, 51, 99]
    assert library.jumps == [3, 50, 99]


def test_reading_much_is_not_taken_for_hanging(library: Library) -> None:
    library.tick_s = 0.3
    library.find(*range(RECORDS))
    assert library.beats > 2


def test_a_later_read_goes_on_where_the_last_one_ended(library: Library) -> None:
    library.find(3, 4)
    assert library.find(5, 8) == [5, 8]
    assert library.find(1) == [1]
    assert library.jumps == [3, 1]


def test_records_below_the_start_of_the_log_are_left_out(library: Library) -> None:
    library.kafka.log_starts[0] = 40
    assert library.find(3, 7, 39, 40, 60) == [40, 60]
    assert library.jumps == [3, 40, 60]


def test_all_records_gone_is_an_answer_too(library: Library) -> None:
    library.kafka.log_starts[0] = RECORDS
    assert library.find(3, 99) == []


def test_a_single_record_that_is_gone_is_found_out_by_a_new_consumer(library: Library) -> None:
    library.find(90)
    library.kafka.logs[INGRESS, 0][10].is_missing = True
    assert library.find(8, 10, 12) == [8, 12]
    assert len(library.readers) == 2


def test_the_first_record_of_the_log_that_is_gone_is_left_out(library: Library) -> None:
    library.kafka.log_starts[0] = 10
    library.kafka.logs[INGRESS, 0][10].is_missing = True
    assert library.find(10, 12) == [12]


def test_the_last_record_gone_is_told_by_the_end_of_the_partition(library: Library) -> None:
    library.kafka.logs[INGRESS, 0][99].is_missing = True
    assert library.find(98, 99) == [98]


def test_what_comes_late_from_before_a_jump_makes_no_record_gone(library: Library) -> None:
    library.find(80)
    library.readers[0].stale = library.kafka.logs[INGRESS, 0][81:84]
    assert library.find(10, 12) == [10, 12]


def test_a_partition_that_ends_before_the_record_is_an_error_and_not_a_loss(
    library: Library,
) -> None:
    with pytest.raises(KafkaException):
        library.find(RECORDS + 20)
    with pytest.raises(KafkaException) as silent:
        library.find(RECORDS)
    assert cast(KafkaError, silent.value.args[0]).code() == KafkaError._TIMED_OUT
    assert SILENT_AT_MOST_S < library.beats <= SILENT_AT_MOST_S + 1
    assert library.find(1) == [1]
    assert len(library.readers) == 2


def test_a_fatal_error_ends_the_read_at_once(library: Library) -> None:
    library.find(1)
    error = KafkaError(KafkaError._FATAL, "made by the test", fatal=True)
    record = library.kafka.append(INGRESS, 0)
    record.error_ = error
    with pytest.raises(KafkaException):
        library.find(RECORDS)
    assert library.beats == 0


def test_at_rest_it_fetches_nothing_and_finds_its_way_again(library: Library) -> None:
    library.find(3)
    library.lookup.stop_if_idle()
    assert library.find(4) == [4]
    library.lookup.stop_if_idle()
    library.lookup.stop_if_idle()
    assert library.find(5) == [5]
    assert library.jumps == [3, 5]
    assert len(library.readers) == 1


def test_closed_it_reads_again_with_another_consumer(library: Library) -> None:
    library.find(3)
    library.lookup.close()
    assert library.find(4) == [4]
    assert len(library.readers) == 2


def test_nothing_is_connected_before_it_is_needed(library: Library) -> None:
    library.lookup.close()
    assert library.readers == []


def test_a_batch_that_cannot_be_read_is_jumped_over_on_the_way(library: Library) -> None:
    library.kafka.unreadable[0] = [(10, 13)]
    assert library.find(8, 14, 60) == [8, 14, 60]
    assert library.jumps == [8, 14, 60]


def test_a_record_in_such_a_batch_is_an_error_unless_it_was_skipped(library: Library) -> None:
    library.kafka.unreadable[0] = [(10, 13)]
    with pytest.raises(KafkaException) as raised:
        library.find(8, 11, 14)
    assert raised.value.args[0].code() == KafkaError._BAD_COMPRESSION
    library.skipped.add(0, range(10, 13))
    assert library.find(8, 10, 11, 12, 13) == [8, 13]
