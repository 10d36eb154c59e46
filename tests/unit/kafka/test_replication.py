"""Replicas of topics, and replicas that confirm a write."""

import pytest

from proxy.config.settings import TopicSettings
from proxy.kafka.topics import replication_for


@pytest.mark.parametrize(
    ("brokers", "expected"), [(0, (1, 1)), (1, (1, 1)), (2, (2, 1)), (3, (3, 2)), (9, (3, 2))]
)
def test_a_cluster_gives_what_it_has_up_to_three_of_which_all_but_one_confirm(
    brokers: int, expected: tuple[int, int]
) -> None:
    assert replication_for(TopicSettings(), brokers) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"replication_factor": 5}, (5, 4)),
        ({"replication_factor": 1}, (1, 1)),
        ({"replication_factor": 3, "min_insync_replicas": 1}, (3, 1)),
        ({"min_insync_replicas": 3}, (3, 3)),
    ],
)
def test_the_settings_have_their_way(values: dict[str, int], expected: tuple[int, int]) -> None:
    assert replication_for(TopicSettings(**values), 3) == expected
