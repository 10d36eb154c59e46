"""Topics that the proxy names after consumer groups: `retry.<group>` and `dlq.<group>`.

Any producer can invent groups; how many topics that makes is bounded. Groups that the broker knows
do not count: nobody becomes one by writing to the ingress.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from proxy.config.settings import Settings, TopicSettings
from proxy.kafka.access.rights import create_right, grant, is_refusal
from proxy.kafka.replication import MIN_INSYNC, UNPACKED, replication_in

TIMEOUT_S: Final = 10.0
LISTED_FOR_S: Final = 5.0

log = structlog.get_logger(__name__)


class DerivedTopics:
    """Creates them when they are first asked for (docs/guide.md#retries-of-consumers)."""

    def __init__(
        self,
        admin: AdminClient,
        settings: Settings,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin, self._settings = admin, settings
        self._topics, self._retry = settings.topics, settings.retry
        self._now_s = now_s
        self._unnamed: set[str] = set()
        self._known: set[str] = set()
        self._listed_until_s = self._known_until_s = 0.0

    def create(self, topic: str) -> str | None:
        """Create a missing one; None once it is there, else why not, "" where it is no business of
        the proxy."""
        group = group_named_in(topic, self._topics)
        if not self._topics.create or group is None:
            return ""
        try:
            if group not in self._retry.groups and (too_many := self._too_many(topic, group)):
                return too_many
            replication = replication_in(self._admin, self._topics)
            wanted = NewTopic(
                topic,
                self._topics.partitions,
                replication.factor,
                config={MIN_INSYNC: str(replication.min_insync), **UNPACKED},
            )
            self._admin.create_topics(
                [wanted], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S
            )[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                return self._not_created(topic, error.args[0])
        else:
            log.info("topic created", topic=topic)
        return None

    def _not_created(self, topic: str, error: KafkaError) -> str:
        why = error.str()
        if is_refusal(error):
            why = f"{why}. {grant([create_right(topic)], self._settings)}"
        log.warning("topic not created", topic=topic, why=why)
        return f"the topic {topic} could not be created: {why}"

    def _too_many(self, topic: str, group: str) -> str | None:
        """Groups that the settings do not name have so many topics; those that have one may have
        the other."""
        unnamed, most = self._unnamed_groups(), self._retry.unnamed_groups
        known = self._known_groups() if len(unnamed) >= most else set()
        if group in unnamed or group in known or len(unnamed - known) < most:
            unnamed.add(group)
            return None
        return (
            f"the topic {topic} is not created: {len(unnamed - known)} consumer groups that "
            "neither the settings nor the broker know have such topics already "
            "(retry.unnamed_groups); name the group under retry.groups, have it consume, or "
            "create the topic"
        )

    def _known_groups(self) -> set[str]:
        """Groups with members or committed offsets, as far as the proxy's user may see them."""
        if self._now_s() >= self._known_until_s:
            self._known_until_s = self._now_s() + LISTED_FOR_S
            with suppress(KafkaException):
                listed = self._admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
                self._known = {one.group_id for one in listed.valid}
        return self._known

    def _unnamed_groups(self) -> set[str]:
        """Groups with a topic that the settings do not name; listed once for all that are invented
        within a while."""
        if self._now_s() >= self._listed_until_s:
            topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
            found = (group_named_in(topic, self._topics) for topic in topics)
            groups = {group for group in found if group is not None}
            self._unnamed = groups - set(self._retry.groups)
            self._listed_until_s = self._now_s() + LISTED_FOR_S
        return self._unnamed


def group_named_in(topic: str, names: TopicSettings) -> str | None:
    """The consumer group that a topic is named after; None: after none.

    Topics that keep account of replays are named after a topic of dead letters.
    """
    if fnmatchcase(topic, names.replay_marks_of(f"{names.dlq_prefix}*")):
        return None
    for prefix in (names.retry_prefix, names.dlq_prefix):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None
