"""Partition owners from broker answers. Unreadable answers are refused."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kafka.group import GroupOwners, OwnersUnknown, group_owners


def _assignment(owned: dict[str, list[int]]) -> bytes:
    written = struct.pack(">hi", 1, len(owned))
    for topic, partitions in owned.items():
        name = topic.encode()
        written += struct.pack(f">h{len(name)}si", len(name), name, len(partitions))
        written += struct.pack(f">{len(partitions)}i", *partitions)
    return written + struct.pack(">i3s", 3, b"abc")


def _group(*assignments: bytes, state: str = "Stable") -> Any:
    members = [SimpleNamespace(id=f"m{n}", assignment=one) for n, one in enumerate(assignments)]
    return SimpleNamespace(error=None, state=state, members=members)


def test_partitions_of_all_members_and_topics_are_told() -> None:
    group = _group(_assignment({"timer.ingress": [0, 2], "ü": [7]}), _assignment({}), b"")
    assert group_owners([group]) == GroupOwners(
        True,
        frozenset({("timer.ingress", 0), ("timer.ingress", 2), ("ü", 7)}),
        frozenset({"m0", "m1", "m2"}),
    )


@pytest.mark.parametrize("groups", [[], [_group(state="PreparingRebalance")]], ids=["none", "busy"])
def test_group_that_is_not_there_or_rebalances_is_not_stable(groups: list[Any]) -> None:
    assert group_owners(groups) == GroupOwners(False, frozenset())


def test_answer_of_a_broker_that_failed_is_left_out() -> None:
    group = _group(_assignment({"t": [0]}))
    group.error = "not the coordinator"
    assert group_owners([group]) == GroupOwners(False, frozenset())


def test_members_are_told_while_the_group_rebalances() -> None:
    group = _group(b"", state="PreparingRebalance")
    assert group_owners([group]).members == {"m0"}


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_are_read_or_refused(assignment: bytes) -> None:
    """Invariant: any claim of a member gives owners or OwnersUnknown."""
    try:
        owners = group_owners([_group(assignment)])
    except OwnersUnknown:
        return
    assert owners.is_stable


def test_lengths_beyond_the_end_are_refused() -> None:
    claimed = struct.pack(">hi", 1, 2**31 - 1)
    for assignment in (claimed, struct.pack(">hih", 1, 1, 2**15 - 1), b"\0"):
        with pytest.raises(OwnersUnknown, match="cannot be read"):
            group_owners([_group(assignment)])
