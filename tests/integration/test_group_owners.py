"""A real cluster tells the owners of groups, also while one of its brokers is away."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer

from proxy.kafka.group import ASK_S, GroupOwners, OwnersUnknown, ask_in_thread
from tests.support.installation.cluster import running_cluster
from tests.support.quiet_clients import QUIET
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore:list_groups.. is deprecated:DeprecationWarning"),
]

SHARED_WITHIN_S = 120
TOPIC, PARTITIONS, GROUP = "shared", 4, "sharers"


def test_owners_are_told_with_a_broker_away_and_without_a_group(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        client = {"bootstrap.servers": cluster.bootstrap_servers, **QUIET}
        assert ask_in_thread(client, "nobody").result(2 * ASK_S) == GroupOwners(False, frozenset())

        cluster.create_topic(TOPIC, PARTITIONS)
        whole = frozenset((TOPIC, number) for number in range(PARTITIONS))
        members = [Consumer({**client, "group.id": GROUP}) for _ in range(2)]
        for member in members:
            member.subscribe([TOPIC])

        def is_recorded() -> bool:
            for member in members:
                member.poll(0.1)
            try:
                owners = ask_in_thread(client, GROUP).result(2 * ASK_S)
            except OwnersUnknown:
                return False
            return (owners.is_stable, owners.owned) == (True, whole) and len(owners.members) == 2

        wait_for(is_recorded, SHARED_WITHIN_S, "all partitions with the members")
        coordinator = cluster.group_coordinator(GROUP)
        cluster.kill(next(number for number in cluster.numbers if number != coordinator))
        wait_for(is_recorded, SHARED_WITHIN_S, "the same with one broker away")
        for member in members:
            member.close()
