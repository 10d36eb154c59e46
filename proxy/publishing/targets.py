"""What the broker says of target topics: whether they exist, how many partitions, whether the
proxy may write to them. Asked in bulk and remembered for a while, never once a record.

Asking never creates a topic, whatever the broker's auto.create.topics.enable says.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from proxy.dispatch.known_targets import NONE, KnownTargets, TopicRules
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

log = structlog.get_logger(__name__)


class Targets:
    """Keeps `known` up to date: what the broker says of topics.

    `create` makes a missing topic where that is the proxy's business: None once it is there, else
    why not, "" where nothing is to be said.
    """

    def __init__(
        self,
        admin: AdminClient,
        create: Callable[[str], str | None] = lambda _topic: "",
        *,
        is_compressing: bool = False,
    ) -> None:
        self._admin, self._create = admin, create
        self.known = KnownTargets(is_compressing=is_compressing)
        self._known_until_ms: dict[str, int] = {}

    def learn(self, topics: set[str], now_ms: int) -> None:
        """Make sure that all of `topics` are known as they are now; ask the broker if not."""
        until_ms = self._known_until_ms
        stale = [topic for topic in topics if until_ms.get(topic, 0) <= now_ms]
        if len(until_ms) + len(stale) > REMEMBERED:
            until_ms.clear()
            self.known.clear()
            stale = list(topics)
        for start in range(0, len(stale), ASKED_AT_ONCE):
            self._ask(stale[start : start + ASKED_AT_ONCE], now_ms)
        self._create_missing(stale, now_ms)

    def learn_rules(self, topics: Iterable[str]) -> None:
        """Ask for the rules of these; without the right to ask, they are found by trying."""
        wanted = [
            ConfigResource(ResourceType.TOPIC, topic)
            for topic in topics
            if topic not in self.known.rules
        ]
        if not wanted:
            return
        answers = self._admin.describe_configs(wanted, request_timeout=ASK_TIMEOUT_S)
        for resource, answer in answers.items():
            try:
                config = answer.result()
                self.known.rules[resource.name] = TopicRules(
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
            self.known.rules.pop(topic, None)

    def _create_missing(self, topics: Iterable[str], now_ms: int) -> None:
        """Those that may be created; the broker may not know them for a moment."""
        missing = [t for t in topics if (why := self.known.refusal(t)) and why.code == UNKNOWN]
        answers = {topic: self._create(topic) for topic in missing}
        for topic, why_not in answers.items():
            if why_not:
                self._note(topic, NONE, Rejection(UNKNOWN, why_not), now_ms)
        created = [topic for topic, why_not in answers.items() if why_not is None]
        for _ in range(CREATED_ASKED_TIMES):
            if not created:
                return
            self._ask(created, now_ms)
            created = [topic for topic in created if not self.known.takes(topic)]
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
        elif topic not in self.known.partitions:
            raise KafkaException(error)
        else:
            log.warning("target not described", topic=topic, error=error.str())

    def _note(self, topic: str, partitions: int, refusal: Rejection | None, now_ms: int) -> None:
        self.known.learn(topic, partitions, refusal)
        self._known_until_ms[topic] = now_ms + (MISSING_FOR_MS if refusal else KNOWN_FOR_MS)


def _not_authorised(topic: str, what: str) -> Rejection:
    return Rejection(
        "not-authorised", f"the proxy's user {what} ({topic}): grant it Write and Describe"
    )
