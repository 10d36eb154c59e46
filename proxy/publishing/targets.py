"""What the broker says of target topics: whether they exist, how many partitions, whether the
proxy may write to them. Asked in bulk and remembered for a while, never once a record.

Asking never creates a topic, whatever the broker's auto.create.topics.enable says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from proxy.records.body import GONE
from proxy.records.rejection import Rejection

MISSING_FOR_MS: Final = 5_000
"""A topic created meanwhile is found after this time at the latest."""
KNOWN_FOR_MS: Final = 60_000
ASKED_AT_ONCE: Final = 500
REMEMBERED: Final = 100_000
ASK_TIMEOUT_S: Final = 10.0
UNKNOWN: Final = "target-unknown"
CREATED_ASKED_TIMES: Final = 20
CREATED_PAUSE_S: Final = 0.05
NONE: Final = -1
"""Partition count of a topic that cannot be written to."""

log = structlog.get_logger(__name__)


class Rules(NamedTuple):
    """What a topic asks of its records: the largest batch, and whether compaction needs keys."""

    batch_bytes: int
    needs_key: bool


class Targets:
    """`partitions[topic]` is the partition count, NONE when `why_not` has the reason.

    `create` makes a missing topic where that is the proxy's business, and says whether it did.

    `rules[topic]` is there for topics that have refused a batch.
    """

    def __init__(
        self, admin: AdminClient, create: Callable[[str], bool] = lambda _topic: False
    ) -> None:
        self._admin, self._create = admin, create
        self.partitions: dict[str, int] = {}
        self.rules: dict[str, Rules] = {}
        self._refused: dict[str, Rejection] = {}
        self._known_until_ms: dict[str, int] = {}

    def learn(self, topics: set[str], now_ms: int) -> None:
        """Make sure that `partitions` is fresh for all of `topics`; ask the broker if not."""
        known = self._known_until_ms
        stale = [topic for topic in topics if known.get(topic, 0) <= now_ms]
        if len(known) + len(stale) > REMEMBERED:
            for memory in (known, self.partitions, self.rules, self._refused):
                memory.clear()
            stale = list(topics)
        for start in range(0, len(stale), ASKED_AT_ONCE):
            self._ask(stale[start : start + ASKED_AT_ONCE], now_ms)
        self._create_missing(stale, now_ms)

    def learn_rules(self, topics: Iterable[str]) -> None:
        """Ask for the rules of these; without the right to ask, they are found by trying."""
        wanted = [
            ConfigResource(ResourceType.TOPIC, topic) for topic in topics if topic not in self.rules
        ]
        if not wanted:
            return
        answers = self._admin.describe_configs(wanted, request_timeout=ASK_TIMEOUT_S)
        for resource, answer in answers.items():
            try:
                config = answer.result()
                self.rules[resource.name] = Rules(
                    int(config["max.message.bytes"].value),
                    "compact" in config["cleanup.policy"].value,
                )
            except KafkaException as error:
                why = error.args[0].str()
                log.warning("rules of a topic not known", topic=resource.name, error=why)

    def forget(self, topics: Iterable[str]) -> None:
        """The broker contradicted what is remembered of these: ask again next time."""
        for topic in topics:
            self._known_until_ms.pop(topic, None)

    def why_not(self, target: str, partition: int) -> Rejection:
        """The reason why nothing can be delivered to this partition (-1: any) of the target."""
        if partition == GONE:
            return _body_gone(target)
        return self._refused.get(target) or Rejection(
            "partition-bad",
            f"timer-partition is {partition}, but {target} has partitions 0 to "
            f"{self.partitions[target] - 1}",
        )

    def refusal_of(self, topic: str) -> Rejection | None:
        """Why nothing can be written to this topic; None where it can."""
        return self._refused.get(topic)

    def _create_missing(self, topics: Iterable[str], now_ms: int) -> None:
        """Those that may be created; the broker may not know them for a moment."""
        missing = [t for t in topics if (why := self._refused.get(t)) and why.code == UNKNOWN]
        created = [topic for topic in missing if self._create(topic)]
        for _ in range(CREATED_ASKED_TIMES):
            if not created:
                return
            self._ask(created, now_ms)
            created = [topic for topic in created if self.partitions[topic] == NONE]
            if created:
                time.sleep(CREATED_PAUSE_S)

    def _ask(self, topics: list[str], now_ms: int) -> None:
        answers = self._admin.describe_topics(
            TopicCollection(topics),
            include_authorized_operations=True,
            request_timeout=ASK_TIMEOUT_S,
        )
        for topic, answer in answers.items():
            try:
                description = answer.result()
            except KafkaException as error:
                self._note_error(topic, error.args[0], now_ms)
            else:
                operations = description.authorized_operations
                may_write = not operations or AclOperation.WRITE in operations
                refusal = None if may_write else _not_authorised(topic, "may not write to it")
                self._note(topic, len(description.partitions), refusal, now_ms)

    def _note_error(self, topic: str, error: KafkaError, now_ms: int) -> None:
        code = error.code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            why = f"the topic {topic} does not exist: create it, then send the record again"
            self._note(topic, NONE, Rejection(UNKNOWN, why), now_ms)
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._note(topic, NONE, _not_authorised(topic, "may not see it"), now_ms)
        elif topic not in self.partitions:
            raise KafkaException(error)
        else:
            log.warning("target not described", topic=topic, error=error.str())

    def _note(self, topic: str, count: int, refusal: Rejection | None, now_ms: int) -> None:
        self.rules.pop(topic, None)
        self.partitions[topic] = NONE if refusal else count
        self._known_until_ms[topic] = now_ms + (MISSING_FOR_MS if refusal else KNOWN_FOR_MS)
        if refusal:
            self._refused[topic] = refusal
        else:
            self._refused.pop(topic, None)


def _body_gone(target: str) -> Rejection:
    return Rejection(
        "body-gone",
        f"the record for {target} was deleted from the ingress before it could be read back: raise "
        "the topic's retention.ms, or set `bodies: local`",
    )


def _not_authorised(topic: str, what: str) -> Rejection:
    return Rejection(
        "not-authorised", f"the proxy's user {what} ({topic}): grant it Write and Describe"
    )
