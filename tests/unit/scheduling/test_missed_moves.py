"""Shed offsets: written with the transaction, and read at a takeover."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.scheduling.missed_moves import (
    CHUNK_OFFSETS,
    MissedMoves,
    MissedPlace,
    MissedPlan,
    MissedReading,
    missed_place,
)

PLACE = missed_place("settings", "group", "ingress", "id", 3)
Log = list[tuple[str, bytes | None]]


def written(log: Log, plan: MissedPlan) -> None:
    log.extend(((record.key or b"").decode(), record.value) for record in plan.records)


def read(log: Log, at: int, floor: int) -> MissedReading:
    reading = MissedReading(PLACE, at, floor)
    for key, value in log:
        reading.take(key, value)
    return reading


def shed(offsets: MissedMoves, log: Log, some: list[int]) -> int:
    for offset in some:
        offsets.add(offset)
    plan = offsets.planned(some[-1] + 1, 0)
    written(log, plan)
    offsets.confirm(plan.upto, 0)
    assert plan.upto is not None
    return plan.upto


moves_made = st.lists(
    st.tuples(st.lists(st.integers(1, 30_000), max_size=4), st.integers(0, 100), st.booleans()),
    max_size=30,
)


@given(moves_made)
def test_what_is_committed_is_what_is_read_again(
    moves: list[tuple[list[int], int, bool]],
) -> None:
    """Invariant: after commits and crashes exactly the committed offsets are shed."""
    offsets, log, model = MissedMoves(PLACE), Log(), set[int]()
    next_offset = floor = 0
    for gaps, floor_percent, crashes in moves:
        for gap in gaps:
            next_offset += gap
            offsets.add(next_offset)
            model.add(next_offset)
        next_offset += 1
        floor = max(floor, next_offset * floor_percent // 100)
        plan = offsets.planned(next_offset, floor)
        written(log, plan)
        offsets.confirm(plan.upto, floor)
        model = {n for n in model if n // CHUNK_OFFSETS >= floor // CHUNK_OFFSETS}
        if crashes and plan.upto is not None:
            offsets = read(log, plan.upto, floor).result()
        elif crashes:
            offsets = MissedMoves(PLACE)
        assert bool(offsets.chunks) == bool(model)
        assert all(offset in offsets for offset in model)
        assert not any(offset + 1 in offsets for offset in model if offset + 1 not in model)


def test_a_transaction_that_sheds_nothing_writes_nothing() -> None:
    offsets, log = MissedMoves(PLACE), Log()
    at = shed(offsets, log, [5, 9])
    assert offsets.planned(20, 6) == MissedPlan(at, ())


def test_an_aborted_transaction_is_planned_again_with_the_same() -> None:
    offsets = MissedMoves(PLACE)
    offsets.add(7)
    assert offsets.planned(8, 0) == offsets.planned(8, 0)
    assert len(offsets.planned(9, 0).records) == 1


def test_what_lies_below_the_floor_is_deleted() -> None:
    offsets, log = MissedMoves(PLACE), Log()
    shed(offsets, log, [5])
    plan = offsets.planned(CHUNK_OFFSETS + 9, CHUNK_OFFSETS)
    assert plan.upto is None
    found = [(record.key, record.value) for record in plan.records]
    assert found == [(b"shed/group/ingress/3/0", None)]
    offsets.confirm(None, CHUNK_OFFSETS)
    assert not offsets.chunks
    assert offsets.planned(CHUNK_OFFSETS + 9, CHUNK_OFFSETS) == MissedPlan(None, ())


def test_a_reading_is_complete_with_the_record_of_the_committed_position_alone() -> None:
    offsets, log = MissedMoves(PLACE), Log()
    first, second = shed(offsets, log, [5]), shed(offsets, log, [8])
    assert not read(log[:1], second, 0).is_complete
    assert read(log, second, 0).is_complete
    assert not read(log, first, 0).is_complete


def test_bitmaps_of_an_earlier_life_of_the_partition_do_not_count() -> None:
    """An operator has accepted a loss and restarted where nothing was shed."""
    log = Log()
    shed(MissedMoves(PLACE), log, [5, CHUNK_OFFSETS * 2 + 1])
    at = shed(MissedMoves(PLACE), log, [CHUNK_OFFSETS + 1])
    found = read(log, at, 0).result()
    assert CHUNK_OFFSETS + 1 in found
    assert 5 not in found
    assert CHUNK_OFFSETS * 2 + 1 not in found


@pytest.mark.parametrize(
    "other",
    [
        missed_place("settings", "group", "ingress", "another id", 3),
        missed_place("settings", "group", "ingress", "id", 33),
        missed_place("settings", "group2", "ingress", "id", 3),
    ],
)
def test_those_of_other_partitions_groups_and_topics_do_not_count(other: MissedPlace) -> None:
    log = Log()
    at = shed(MissedMoves(other), log, [5])
    assert not read(log, at, 0).is_complete


@pytest.mark.parametrize("lacks", ["next_offset", "chunks", "offsets", "topic_id"])
def test_a_record_that_is_none_of_these_is_an_error(lacks: str) -> None:
    log = Log()
    shed(MissedMoves(PLACE), log, [5])
    key, value = log[0]
    fields = json.loads(value or b"")
    del fields[lacks]
    with pytest.raises(KeyError):
        MissedReading(PLACE, 6, 0).take(key, json.dumps(fields).encode())


@pytest.mark.parametrize("offsets", ["eJxjAAAAAQAB", "AAAA", "?"])
def test_a_bitmap_that_cannot_be_unpacked_is_an_error(offsets: str) -> None:
    log = Log()
    shed(MissedMoves(PLACE), log, [5])
    key, value = log[0]
    fields = {**json.loads(value or b""), "offsets": offsets}
    with pytest.raises(ValueError, match=r".+"):
        MissedReading(PLACE, 6, 0).take(key, json.dumps(fields).encode())
