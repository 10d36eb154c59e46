"""Related records of a trace, by their headers only."""

from __future__ import annotations

import pytest

from proxy.dead_letters.letter import Origin
from proxy.lineage.histories import End, TracedRecord, is_about, is_retry_of
from proxy.protocol.body import Headers

FIRST = Origin("orders", 2, 7)


def record(place: Origin, headers: Headers) -> TracedRecord:
    return TracedRecord(place, 0, None, None, headers)


def story(attempt: int) -> Headers:
    return [
        ("retry-original-topic", b"orders"),
        ("retry-original-partition", b"2"),
        ("retry-original-offset", b"7"),
        ("retry-attempt", str(attempt).encode()),
    ]


def request(group: bytes, attempt: int) -> TracedRecord:
    return record(Origin("timer.ingress", 0, 1), [("timer-retry-group", group), *story(attempt)])


@pytest.mark.parametrize(
    ("asked", "is_one"),
    [
        (request(b"a", 1), True),
        (request(b"b", 1), True),
        (request(b"a", 2), False),
        (record(Origin("timer.ingress", 0, 1), story(1)), False),
    ],
)
def test_first_failure_is_one_of_any_group(asked: TracedRecord, is_one: bool) -> None:
    assert is_retry_of(asked, record(FIRST, []), None) is is_one


@pytest.mark.parametrize(
    ("asked", "is_one"),
    [(request(b"a", 3), True), (request(b"b", 3), False), (request(b"a", 1), False)],
)
def test_failure_at_a_retry_is_the_next_one_of_its_group(asked: TracedRecord, is_one: bool) -> None:
    delivery = record(Origin("retry.a", 0, 0), story(2))
    assert is_retry_of(asked, delivery, b"a") is is_one


def test_id_means_something_within_one_ingress_partition() -> None:
    origin = Origin("timer.ingress", 1, 5)
    end = End(FIRST, 0, origin, "applied", None, "a", "", None)
    assert is_about(end, origin._replace(offset=1), b"a")
    assert not is_about(end, origin._replace(partition=0), b"a")
    assert not is_about(end, origin, b"b")
