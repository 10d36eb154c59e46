"""Committed positions and their form in the offset metadata."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.position import (
    LAST_OFFSET,
    MAX_POLICIES,
    METADATA_LIMIT_BYTES,
    MetadataUnreadable,
    PolicyFrom,
    Position,
    SetBack,
    TooManyPolicies,
    Watermark,
)

ID = "MRo0F8kGTfqSwkiwmHWHAg"


def position(**fields: object) -> Position:
    base = {
        "next_offset": 10,
        "watermark_ms": 5,
        "cursor": LAST_OFFSET,
        "floor": 2,
        "policies": (PolicyFrom(0, "a" * 16),),
        "topic_id": ID,
    }
    return Position(**{**base, **fields})  # type: ignore[arg-type]


@given(st.integers(0, 2**62), st.integers(-1, 2**62), st.integers(0, LAST_OFFSET), st.data())
def test_metadata_gives_the_position_back(
    next_offset: int, watermark_ms: int, cursor: int, data: st.DataObject
) -> None:
    """Invariant: the recovered position equals the committed one."""
    floor = data.draw(st.integers(0, next_offset))
    before = position(
        next_offset=next_offset, watermark_ms=watermark_ms, cursor=cursor, floor=floor
    )
    assert Position.from_metadata(next_offset, before.to_metadata()) == before


def test_the_metadata_stays_far_below_the_broker_s_limit() -> None:
    many = tuple(PolicyFrom(2**62 + n, "f" * 16) for n in range(MAX_POLICIES))
    full = position(
        next_offset=2**62 + 99, watermark_ms=2**62, cursor=2**62, floor=2**62, policies=many
    )
    assert len(full.to_metadata()) < METADATA_LIMIT_BYTES < 4096


def test_policies_that_no_offset_needs_any_more_are_pruned() -> None:
    policies = (PolicyFrom(0, "a"), PolicyFrom(4, "b"), PolicyFrom(8, "c"))
    kept = json.loads(position(policies=policies, floor=4).to_metadata())["s"]
    assert kept == [[4, "b"], [8, "c"]]
    kept = json.loads(position(policies=policies, floor=3).to_metadata())["s"]
    assert kept == [[0, "a"], [4, "b"], [8, "c"]]


def test_a_policy_that_never_judged_a_record_leaves_no_trace() -> None:
    at = position(policies=(PolicyFrom(0, "a"),)).with_policy("b", 10).with_policy("c", 10)
    assert at.policies == (PolicyFrom(0, "a"), PolicyFrom(10, "c"))
    assert at.with_policy("c", 10) is at


def test_too_many_changes_of_settings_are_refused_with_what_to_do() -> None:
    policies = tuple(PolicyFrom(0, f"p{n}") for n in range(MAX_POLICIES))
    with pytest.raises(TooManyPolicies, match="until these records have been delivered"):
        position(policies=policies).with_policy("one more", 10)


@pytest.mark.parametrize(
    "metadata",
    [None, "", "mine", "[]", "{}", '{"v":2}', '{"v":1,"t":0,"c":0,"f":99,"s":[[0,"a"]],"i":"x"}'],
)
def test_metadata_of_others_is_refused(metadata: str | None) -> None:
    with pytest.raises(MetadataUnreadable, match="not the proxy.s"):
        Position.from_metadata(10, metadata)


def test_a_watermark_set_back_keeps_what_had_ended_until_it_is_there_again() -> None:
    there = Watermark(500, 7)
    back = position(watermark_ms=500, cursor=7).with_watermark_set_back()
    assert back.watermark == (-1, LAST_OFFSET)
    assert [back.ended_upto(offset) for offset in (9, 10)] == [there, back.watermark]
    assert Position.from_metadata(10, back.to_metadata()) == back
    on_the_way = back.advanced(Watermark(500, 6), 10, floor=2)
    assert on_the_way.set_back == SetBack(10, there)
    assert on_the_way.advanced(there, 10, floor=2) == position(watermark_ms=500, cursor=7)


def test_versions_that_cannot_know_of_a_set_back_refuse_it() -> None:
    fields = json.loads(position().with_watermark_set_back().to_metadata())
    assert fields["v"] == 2
    assert json.loads(position().to_metadata())["v"] == 1


@pytest.mark.parametrize("is_set_back", [False, True])
def test_versions_that_cannot_know_of_missed_moves_refuse_them(is_set_back: bool) -> None:
    at = position(missed_upto=9)
    at = at.with_watermark_set_back() if is_set_back else at
    fields = json.loads(at.to_metadata())
    assert (fields["v"], fields["r"]) == (3, 9)
    assert Position.from_metadata(10, at.to_metadata()) == at
