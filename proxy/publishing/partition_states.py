"""Which partitions cannot be written to now: without a leader, or with too few replicas in sync."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
    TopicDescription,
)

ANSWER_TIMEOUT_S: Final = 1.0
ASKED_ONE_BY_ONE: Final = 20
"""Of more topics than that it takes less to ask for all there are."""
LOGGED_AT_ONCE: Final = 20

log = structlog.get_logger(__name__)


class PartitionState(NamedTuple):
    """What the broker's metadata say of one partition."""

    number: int
    has_leader: bool
    in_sync: int
    replicas: int


def states_of(description: TopicDescription) -> list[PartitionState]:
    """From the answer to `describe_topics`."""
    return [
        PartitionState(p.id, p.leader is not None, len(p.isr), len(p.replicas))
        for p in description.partitions
    ]


def listed_states(admin: AdminClient, topics: set[str]) -> dict[str, list[PartitionState]]:
    """From the metadata of whichever broker answers; less, or nothing, when it does not in time.

    Topics have to exist: to ask for one that does not can create it.
    """
    found: dict[str, list[PartitionState]] = {}
    wanted: Iterable[str | None] = topics if len(topics) <= ASKED_ONE_BY_ONE else [None]
    for topic in wanted:
        try:
            metadata = admin.list_topics(topic, ANSWER_TIMEOUT_S)
        except KafkaException as error:
            log.info("topics not listed", why=error.args[0].str())
            break
        for name in topics & metadata.topics.keys():
            partitions = metadata.topics[name].partitions.values()
            found[name] = [
                PartitionState(p.id, p.leader >= 0, len(p.isrs), len(p.replicas))
                for p in partitions
            ]
    return found


def find_controller(admin: AdminClient, topic: str | None) -> None:
    """Let the client learn who is the controller now, by a question about any topic that exists.

    It asks that broker alone to describe topics, and waits for it for minutes when it is gone.
    """
    with suppress(KafkaException):
        admin.list_topics(topic, ANSWER_TIMEOUT_S)


class UnavailablePartitions:
    """Tells them from the states of partitions; says once of each that it is, and that it is back.

    The least number of replicas in sync is asked for only where some replica is missing. A topic
    whose configuration the proxy may not see counts as one that is content with one.
    """

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._least_in_sync: dict[str, int] = {}
        self._said: dict[str, Mapping[int, str]] = {}

    def of(self, states: Mapping[str, list[PartitionState]]) -> dict[str, dict[int, str]]:
        """Of each topic: its partitions that cannot be written to now, and why."""
        self._ask({topic for topic, found in states.items() if any(map(_lacks_some, found))})
        unavailable = {
            topic: dict(_reasons(found, self._least_in_sync.get(topic, 1)))
            for topic, found in states.items()
        }
        for topic, reasons in unavailable.items():
            self._say(topic, reasons)
        return unavailable

    def clear(self) -> None:
        """Forget everything."""
        self._least_in_sync.clear()
        self._said.clear()

    def _ask(self, topics: set[str]) -> None:
        """Each time, since an operator may change it; what is not answered stays as it was."""
        if not topics:
            return
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        answers = self._admin.describe_configs(wanted, request_timeout=ANSWER_TIMEOUT_S)
        for resource, answer in answers.items():
            try:
                least = answer.result()["min.insync.replicas"].value
            except KafkaException as error:
                why = error.args[0].str()
                log.info("min.insync.replicas not known", topic=resource.name, why=why)
            else:
                self._least_in_sync[resource.name] = int(least)

    def _say(self, topic: str, reasons: Mapping[int, str]) -> None:
        said = self._said.get(topic, {})
        news = [(number, why) for number, why in reasons.items() if said.get(number) != why]
        for number, why in news[:LOGGED_AT_ONCE]:
            log.warning("partition unavailable", topic=topic, partition=number, why=why)
        if len(news) > LOGGED_AT_ONCE:
            more = len(news) - LOGGED_AT_ONCE
            log.warning("more partitions unavailable", topic=topic, partitions=more)
        if back := sorted(said.keys() - reasons.keys()):
            log.info("partitions available again", topic=topic, partitions=back[:LOGGED_AT_ONCE])
        if reasons:
            self._said[topic] = reasons
        else:
            self._said.pop(topic, None)


def _lacks_some(state: PartitionState) -> bool:
    return state.has_leader and state.in_sync < state.replicas


def _reasons(states: list[PartitionState], least_in_sync: int) -> Iterator[tuple[int, str]]:
    for number, has_leader, in_sync, replicas in states:
        if not has_leader:
            yield number, "has no leader"
        elif in_sync < min(least_in_sync, replicas):
            least = f"min.insync.replicas is {least_in_sync}"
            yield number, f"has {in_sync} of {replicas} replicas in sync, and {least}"
