"""Records that the client library returns again are skipped."""

from __future__ import annotations

from typing import Any, cast

import pytest
import structlog
from confluent_kafka import KafkaException

from proxy.kafka.ingress import Ingress, ReadPositions
from proxy.protocol.body import Message


class At:
    """A record of partition 4 at an offset."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return 4

    def error(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 0, 0


def offsets(records: list[Message]) -> list[int]:
    return [record.offset() for record in records]


def at(*numbers: int) -> list[Message]:
    return [cast(Message, At(number)) for number in numbers]


@pytest.fixture
def positions() -> ReadPositions:
    positions = ReadPositions()
    positions.begin({4: 10})
    return positions


def test_records_in_order_are_given_as_they_come_gaps_and_all(positions: ReadPositions) -> None:
    for batch in ([10, 11, 14], [15], [40]):
        records = at(*batch)
        assert positions.fresh(4, records) is records


@pytest.mark.parametrize("again", [[8, 9], [10], [12, 13], [10, 11, 12, 13]])
def test_what_was_given_before_is_left_out_and_said_once(
    positions: ReadPositions, again: list[int]
) -> None:
    positions.fresh(4, at(10, 11, 12, 13))
    with structlog.testing.capture_logs() as logs:
        assert positions.fresh(4, at(*again)) == []
        assert offsets(positions.fresh(4, at(14, 16))) == [14, 16]
    assert [(line["count"], line["next_offset"]) for line in logs] == [(len(again), 14)]


def test_what_goes_back_within_one_fetch_is_left_out(positions: ReadPositions) -> None:
    assert offsets(positions.fresh(4, at(10, 11, 12, 10, 11, 12, 13))) == [10, 11, 12, 13]
    assert offsets(positions.fresh(4, at(12, 13, 14))) == [14]


def test_a_partition_that_comes_back_is_read_from_where_it_is_taken_over(
    positions: ReadPositions,
) -> None:
    positions.fresh(4, at(10, 11, 12, 13))
    positions.end([4, 5])
    positions.begin({4: 11})
    assert offsets(positions.fresh(4, at(11, 12))) == [11, 12]


def test_the_ingress_leaves_them_out() -> None:
    consumer = Repeating()
    ingress = Ingress(cast(Any, consumer), "timer.ingress", lambda: cast(Any, None))
    ingress.join(cast(Any, consumer))
    consumer.on_assign(consumer, [consumer])
    assert [offsets(ingress.fetch(0).records[4]) for _ in range(2)] == [[10, 11], []]


class Repeating:
    """Consumer and owner of one partition, which returns two records repeatedly."""

    partition = 4

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self.on_assign = callbacks["on_assign"]

    def take_over(self, partitions: list[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 10)

    def incremental_assign(self, starts: object) -> None:
        """Do nothing."""

    def poll(self, _: float) -> Message:
        return at(10)[0]

    def consume(self, _count: int, _wait_s: float) -> list[Message]:
        return at(11)


def test_what_is_read_again_on_purpose_is_given_again(positions: ReadPositions) -> None:
    positions.fresh(4, at(10, 11, 14))
    positions.rewind({4: 11})
    assert positions.offsets == {4: 11}
    assert offsets(positions.fresh(4, at(11, 14, 15))) == [11, 14, 15]
    positions.reach(4, 20)
    assert positions.offsets == {4: 20}


def test_a_client_that_does_not_go_back_skips_nothing_unnoticed(positions: ReadPositions) -> None:
    positions.fresh(4, at(10, 11, 14))
    positions.rewind({4: 11})
    with pytest.raises(
        KafkaException, match="offset 11 was to be read next, but offset 15 arrived"
    ):
        positions.fresh(4, at(15))


def test_a_client_that_is_at_the_end_before_it_goes_back_is_noticed(
    positions: ReadPositions,
) -> None:
    positions.fresh(4, at(10, 11, 14))
    positions.rewind({4: 11})
    with pytest.raises(KafkaException, match="offset 15 arrived"):
        positions.reach(4, 15)


def test_nothing_is_read_again_where_nothing_was_read(positions: ReadPositions) -> None:
    positions.rewind({4: 10})
    positions.reach(4, 15)
    assert positions.offsets == {4: 15}
