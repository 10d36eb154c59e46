"""The topics of the proxy and of retry groups."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
    TopicDescription,
)
from confluent_kafka.cimpl import NewTopic

from proxy.config.policy_from_settings import takes_bombs
from proxy.config.settings import Settings, TopicSettings
from proxy.errors import BrokerRefused, ProxyError, TopicMissing
from proxy.kafka.access import (
    UNREACHABLE,
    Connection,
    grant,
    is_refusal,
    refuse_missing_rights,
    topic_rights,
)
from proxy.kafka.client_settings import common_config

log = structlog.get_logger(__name__)


ENOUGH: Final = 3
MIN_INSYNC: Final = "min.insync.replicas"
UNPACKED: Final = {"compression.type": "uncompressed"}
"""With this setting, the broker limits the unpacked size of batches, and refuses unreadable ones.
"""


class Replication(NamedTuple):
    """`replication.factor` and `min.insync.replicas`."""

    factor: int
    min_insync: int


def replication_for(topics: TopicSettings, brokers: int) -> Replication:
    """Return the replication of the settings. By default a topic has up to three replicas, and all
    replicas but one must confirm a write."""
    factor = topics.replication_factor or min(ENOUGH, max(1, brokers))
    return Replication(factor, topics.min_insync_replicas or max(1, factor - 1))


def replication_in(admin: AdminClient, topics: TopicSettings) -> Replication:
    """Return the replication for this cluster. Raises KafkaException."""
    return replication_for(topics, len(admin.list_topics(timeout=ASK_TIMEOUT_S).brokers))


ASK_TIMEOUT_S: Final = 10.0
KNOWN_WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 0.02
TOPIC_EVERY_S: Final = 2.0
DAY_MS: Final = 86_400_000
INGRESS_DAYS: Final = 14
CHANGES_DAYS: Final = 366


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The broker's facts about a topic."""

    name: str
    topic_id: str
    partitions: int


def admin_client(settings: Settings) -> Connection:
    """Return an admin client with the user's connection settings."""
    return Connection(settings, common_config(settings))


def own_topics(settings: Settings) -> dict[str, dict[str, str]]:
    """Return the configuration with which each of the proxy's topics is created.

    Pending records are rewritten after half the ingress retention. So the retention only needs to
    be over twice the longest downtime. Records get the broker's time.
    """
    names = settings.topics
    stay = str(settings.max_delay_ms + DAY_MS)
    more = {
        names.ingress: {"retention.ms": str(INGRESS_DAYS * DAY_MS)},
        names.dead_letters: {"retention.ms": stay, "max.message.bytes": str(2 * 1024 * 1024)},
        names.outcomes: {"retention.ms": stay},
        names.settings: {"cleanup.policy": "compact"},
    }
    always = {"message.timestamp.type": "LogAppendTime", **UNPACKED}
    return {name: {**always, **one} for name, one in more.items()}


def changes_topic(settings: Settings) -> dict[str, dict[str, str]]:
    """Return the configuration of the topic of operators' changes. `run` works without it."""
    kept = {"retention.ms": str(CHANGES_DAYS * DAY_MS)}
    always = {"message.timestamp.type": "LogAppendTime", **UNPACKED}
    return {settings.topics.changes: {**always, **kept}}


def ensure_topics(settings: Settings, admin: Connection | None = None) -> None:
    """Create missing topics if `topics.create` allows it. Raises TopicMissing, BrokerUnreachable,
    BrokerRefused."""
    admin = admin or admin_client(settings)
    try:
        refuse_missing_rights(settings, admin)
        if settings.topics.create:
            if create_missing_topics(settings, admin, own_topics(settings)):
                refuse_missing_rights(settings, admin)
        elif missing := _missing_topics(own_topics(settings), admin):
            raise TopicMissing(next(iter(missing)))
    except KafkaException as error:
        raise admin.sentence(error) from None


def create_missing_topics(
    settings: Settings,
    admin: Connection | None = None,
    topics: Mapping[str, dict[str, str]] | None = None,
) -> list[str]:
    """Create missing topics, by default all topics of the proxy. Another process may create them at
    the same time. Return the names of the topics that were missing."""
    admin = admin or admin_client(settings)
    every = {**own_topics(settings), **changes_topic(settings)}
    wanted = _missing_topics(every if topics is None else topics, admin)
    if not wanted:
        return []
    names, replication = list(wanted), replication_in(admin, settings.topics)
    partitions = {settings.topics.ingress: settings.topics.partitions}
    new = [
        _new_topic(name, partitions.get(name, 1), replication, config)
        for name, config in wanted.items()
    ]
    for name, answer in admin.create_topics(new, request_timeout=ASK_TIMEOUT_S).items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _not_created(name, error, settings, admin) from None
    log.info("topics created", topics=names)
    await_known(names, admin)
    return names


def create_kept_topic(name: str, settings: Settings, admin: Connection) -> None:
    """Create a topic with one partition that keeps all records. Raises BrokerRefused."""
    try:
        topic = _new_topic(name, 1, replication_in(admin, settings.topics), {"retention.ms": "-1"})
        admin.create_topics([topic], request_timeout=ASK_TIMEOUT_S)[name].result()
    except KafkaException as error:
        raise _not_created(name, error, settings, admin) from None
    await_known([name], admin)


def _missing_topics(
    wanted: Mapping[str, dict[str, str]], admin: Connection
) -> dict[str, dict[str, str]]:
    existing = existing_topics(admin)
    return {name: config for name, config in wanted.items() if name not in existing}


def _new_topic(
    name: str, partitions: int, replication: Replication, config: Mapping[str, str]
) -> NewTopic:
    confirmed = {MIN_INSYNC: str(replication.min_insync)}
    return NewTopic(name, partitions, replication.factor, config={**config, **confirmed})


def _not_created(
    name: str, error: KafkaException, settings: Settings, admin: Connection
) -> ProxyError:
    cause: KafkaError = error.args[0]
    if cause.code() in UNREACHABLE:
        return admin.sentence(error)
    remedy = "Create it yourself."
    if is_refusal(cause):
        remedy = f"{grant(topic_rights(name, 'Create'), settings)}\nOr create it yourself."
    said = cause.str().rstrip(".")
    return BrokerRefused(f"The topic {name} could not be created: {said}.", remedy)


def await_known(names: list[str], admin: Connection) -> None:
    """Wait until brokers know new topics, for KNOWN_WITHIN_S at most."""
    deadline = time.monotonic() + KNOWN_WITHIN_S
    while not existing_topics(admin).issuperset(names) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)


def existing_topics(admin: Connection) -> set[str]:
    """Return the names of all topics. Raises BrokerUnreachable or BrokerRefused."""
    try:
        return set(admin.list_topics(timeout=ASK_TIMEOUT_S).topics)
    except KafkaException as error:
        raise admin.sentence(error) from None


def describe_topic(name: str, admin: AdminClient, settings: Settings) -> TopicFacts:
    """Describe a topic that the proxy reads and writes. Raises TopicMissing, BrokerRefused, or
    KafkaException if another attempt may help."""
    answer = admin.describe_topics(
        TopicCollection([name]),
        include_authorized_operations=True,
        request_timeout=ASK_TIMEOUT_S,
    )[name]
    try:
        found = answer.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMissing(name) from None
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise BrokerRefused(
                f"The proxy's user may not see the topic {name}.",
                grant(topic_rights(name, "Describe"), settings),
            ) from None
        raise
    if found.authorized_operations and AclOperation.WRITE not in found.authorized_operations:
        raise BrokerRefused(
            f"The proxy's user may not write to the topic {name}, where the proxy rewrites "
            "records that stay pending.",
            grant(topic_rights(name, "Write"), settings),
        )
    return TopicFacts(name, _id_of(found), len(found.partitions))


class TopicWatch:
    """Notices, without blocking, that a topic was recreated or has grown. A consumer of a recreated
    topic continues at the old offsets. `on_growth` gets the number of partitions."""

    def __init__(
        self,
        admin: AdminClient,
        topic: TopicFacts,
        on_growth: Callable[[int], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin, self._topic, self._now_s = admin, topic, now_s
        self._on_growth, self._partitions = on_growth, topic.partitions
        self._answer: Future[TopicDescription] | None = None
        self._next_look_s = 0.0

    def is_another(self) -> bool:
        """Whether the topic has another id. Asks every TOPIC_EVERY_S."""
        answer, name = self._answer, self._topic.name
        if answer is not None and answer.done():
            self._answer = None
            return answer.exception() is None and self._is_other(answer.result())
        if answer is None and self._now_s() >= self._next_look_s:
            self._next_look_s = self._now_s() + TOPIC_EVERY_S
            asked = TopicCollection([name])
            self._answer = self._admin.describe_topics(asked, request_timeout=ASK_TIMEOUT_S)[name]
        return False

    def _is_other(self, topic: TopicDescription) -> bool:
        if _id_of(topic) != self._topic.topic_id:
            return True
        if (partitions := len(topic.partitions)) > self._partitions:
            log.warning(
                "partitions were added to the ingress: keys move to other partitions, so a cancel "
                "or a replacement by id may miss a record that was written before",
                topic=self._topic.name,
                partitions=partitions,
                before=self._partitions,
            )
            self._partitions = partitions
            self._on_growth(partitions)
        return False


def ingress_config(name: str, admin: AdminClient) -> Mapping[str, str]:
    """Return the configuration of the ingress. If the proxy may not read it, return {}."""
    asked = ConfigResource(ResourceType.TOPIC, name)
    answer = admin.describe_configs([asked], request_timeout=ASK_TIMEOUT_S)[asked]
    try:
        config = {key: entry.value for key, entry in answer.result().items() if entry.value}
        if (problem := takes_bombs(config)) is not None:
            log.warning(
                "the ingress takes batches that no consumer may be able to read",
                topic=name,
                found=problem.found,
                remedy=problem.remedy,
            )
        return config
    except KafkaException as error:
        log.warning(
            "configuration of the ingress not known: set roll_after, or grant DescribeConfigs",
            topic=name,
            error=error.args[0].str(),
        )
        return {}


def retention_ms(config: Mapping[str, str]) -> int | None:
    """Return the retention of a topic. None: unlimited or unknown."""
    kept_ms = int(config.get("retention.ms", "-1"))
    return kept_ms if kept_ms >= 0 else None


def _id_of(topic: TopicDescription) -> str:
    """Return the id as Kafka's tools print it. Such ids are safe for file names."""
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


# Producers can invent groups for `retry.<group>` and `dlq.<group>`, so the number of topics is
# limited. Groups that the broker knows are not limited, because no record can create such a group.

LISTED_FOR_S: Final = 5.0


class DerivedTopics:
    """Creates retry and dlq topics of groups on first use (docs/guide.md#retries-of-consumers)."""

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
        """Create a missing topic. Return None if it exists now, else the reason. The reason ""
        means that the proxy may not create it."""
        group = group_named_in(topic, self._topics)
        if not self._topics.create or group is None:
            return ""
        try:
            if group not in self._retry.groups and (too_many := self._too_many(topic, group)):
                return too_many
            replication = replication_in(self._admin, self._topics)
            wanted = _new_topic(topic, self._topics.partitions, replication, UNPACKED)
            self._admin.create_topics(
                [wanted], operation_timeout=ASK_TIMEOUT_S, request_timeout=ASK_TIMEOUT_S
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
            why = f"{why}. {grant(topic_rights(topic, 'Create'), self._settings)}"
        log.warning("topic not created", topic=topic, why=why)
        return f"the topic {topic} could not be created: {why}"

    def _too_many(self, topic: str, group: str) -> str | None:
        """Return the reason if no further group outside `retry.groups` may get topics, else None. A
        group that has one of its two topics may get the other."""
        unnamed, most = self._unnamed_groups(), self._retry.unnamed_groups
        known = self._known_groups() if len(unnamed) >= most else set()
        if group in unnamed or group in known or len(unnamed - known) < most:
            unnamed.add(group)
            return None
        return (
            f"the topic {topic} is not created, because retry.unnamed_groups limits such topics: "
            f"{len(unnamed - known)} consumer groups have them and are unknown to the settings and "
            "to the broker. Name the group under retry.groups, start its consumers, or create the "
            "topic"
        )

    def _known_groups(self) -> set[str]:
        if self._now_s() >= self._known_until_s:
            self._known_until_s = self._now_s() + LISTED_FOR_S
            with suppress(KafkaException):
                listed = self._admin.list_consumer_groups(request_timeout=ASK_TIMEOUT_S).result()
                self._known = {one.group_id for one in listed.valid}
        return self._known

    def _unnamed_groups(self) -> set[str]:
        if self._now_s() >= self._listed_until_s:
            topics = self._admin.list_topics(timeout=ASK_TIMEOUT_S).topics
            found = (group_named_in(topic, self._topics) for topic in topics)
            groups = {group for group in found if group is not None}
            self._unnamed = groups - set(self._retry.groups)
            self._listed_until_s = self._now_s() + LISTED_FOR_S
        return self._unnamed


def group_named_in(topic: str, names: TopicSettings) -> str | None:
    """Return the consumer group in a topic's name, or None. A topic `<name>.replayed` has none."""
    if fnmatchcase(topic, names.replay_marks_of(f"{names.dlq_prefix}*")):
        return None
    for prefix in (names.retry_prefix, names.dlq_prefix):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None
