"""Records of the settings topic about served partitions."""

import pytest

from proxy.kafka.settings_topic import MOST_POLICIES, ServedPartition
from proxy.protocol.position import PolicyFrom

OLD, NEW = PolicyFrom(0, "old"), PolicyFrom(50, "new")


def test_policies_are_remembered_after_the_committed_metadata_has_forgotten_them() -> None:
    assert ServedPartition("id", (OLD,)).joined("id", [NEW]).policies == (OLD, NEW)


def test_what_was_never_committed_gives_way_to_what_was() -> None:
    told = ServedPartition("id", (OLD, PolicyFrom(60, "never")))
    assert told.joined("id", [NEW, PolicyFrom(70, "newest")]).policies == (
        OLD,
        NEW,
        PolicyFrom(70, "newest"),
    )


def test_nothing_is_remembered_of_a_topic_that_was_made_anew() -> None:
    assert ServedPartition("id", (OLD,)).joined("another", [NEW]) == ServedPartition(
        "another", (NEW,)
    )


def test_the_oldest_are_forgotten_where_there_are_too_many() -> None:
    many = tuple(PolicyFrom(number, "x") for number in range(MOST_POLICIES + 5))
    kept = ServedPartition("id", many).joined("id", [PolicyFrom(9_999, "y")]).policies
    assert len(kept) == MOST_POLICIES
    assert kept[-1] == (9_999, "y")


def test_served_partitions_are_read_as_they_are_written_those_of_older_versions_too() -> None:
    served = ServedPartition("id", (OLD, NEW))
    assert ServedPartition.from_json(served.to_json()) == served
    assert ServedPartition.from_json(b'{"topic_id": "id"}') == ServedPartition("id")
    for odd in (b"{}", b"[]", b"7", b'"topic_id"', b"{", b'{"topic_id": "id", "policies": 7}'):
        with pytest.raises((ValueError, KeyError, TypeError)):
            ServedPartition.from_json(odd)
