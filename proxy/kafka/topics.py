"""The proxy's own topics: created where allowed, and described."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

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

from proxy.config.ingress_retention import takes_bombs
from proxy.config.settings import Settings
from proxy.errors import BrokerRefused, ProxyError, TopicMissing
from proxy.kafka.access.broker_errors import UNREACHABLE, HearingAdminClient
from proxy.kafka.access.rights import (
    Right,
    create_right,
    grant,
    is_refusal,
    refuse_missing_rights,
)
from proxy.kafka.client_settings import common_config
from proxy.kafka.replication import MIN_INSYNC, UNPACKED, replication_in

ASK_TIMEOUT_S: Final = 10.0
KNOWN_WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 0.02
TOPIC_EVERY_S: Final = 2.0
DAY_MS: Final = 86_400_000
INGRESS_DAYS: Final = 14

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the broker says of a topic that exists."""

    name: str
    topic_id: str
    partitions: int


def admin_client(settings: Settings) -> HearingAdminClient:
    """An admin client with the user's own connection settings."""
    return HearingAdminClient(settings, common_config(settings))


def own_topics(settings: Settings) -> dict[str, dict[str, str]]:
    """The configuration with which each own topic is created, by name.

    A record that waits longer than half the ingress topic's retention is rewritten, so that need
    not be longer than what the proxy may be down for. Time is the broker's own there: a producer's
    clock decides nothing.
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


def ensure_topics(settings: Settings, admin: HearingAdminClient | None = None) -> list[str]:
    """As a proxy that starts does: create what is missing if `topics.create` allows; the names.

    Raises TopicMissing; BrokerRefused where a right is missing; BrokerUnreachable.
    """
    admin = admin or admin_client(settings)
    try:
        refuse_missing_rights(settings, admin)
        missing = _missing_topics(settings, admin)
        if missing and not settings.topics.create:
            raise TopicMissing(missing[0])
        created = create_topics(settings, missing, admin)
        if created:
            refuse_missing_rights(settings, admin)
    except KafkaException as error:
        raise admin.sentence(error) from None
    return created


def create_missing_topics(settings: Settings, admin: HearingAdminClient | None = None) -> list[str]:
    """Create the own topics that are missing, since a person asks for it; the names created."""
    admin = admin or admin_client(settings)
    return create_topics(settings, _missing_topics(settings, admin), admin)


def _missing_topics(settings: Settings, admin: HearingAdminClient) -> list[str]:
    existing = existing_topics(admin)
    return [name for name in own_topics(settings) if name not in existing]


def create_topics(settings: Settings, names: list[str], admin: HearingAdminClient) -> list[str]:
    """Create these own topics; one that another process just created is fine."""
    if not names:
        return []
    configs, replication = own_topics(settings), replication_in(admin, settings.topics)
    wanted = [
        NewTopic(
            name,
            num_partitions=settings.topics.partitions if name == settings.topics.ingress else 1,
            replication_factor=replication.factor,
            config={**configs[name], MIN_INSYNC: str(replication.min_insync)},
        )
        for name in names
    ]
    for name, answer in admin.create_topics(wanted, request_timeout=ASK_TIMEOUT_S).items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _not_created(name, error, settings, admin) from None
    log.info("topics created", topics=names)
    await_known(names, admin)
    return names


def _not_created(
    name: str, error: KafkaException, settings: Settings, admin: HearingAdminClient
) -> ProxyError:
    """A broker that does not answer has refused nothing: asking again may help."""
    cause: KafkaError = error.args[0]
    if cause.code() in UNREACHABLE:
        return admin.sentence(error)
    remedy = "Create it by hand."
    if is_refusal(cause):
        remedy = f"Create it by hand, or: {grant([create_right(name)], settings)}"
    return BrokerRefused(f"The topic {name} could not be created: {cause.str()}.", remedy)


def await_known(names: list[str], admin: HearingAdminClient) -> None:
    """Brokers hear of topics a little after they were made: who asks sooner finds none.

    After KNOWN_WITHIN_S whoever needs them gets an error.
    """
    deadline = time.monotonic() + KNOWN_WITHIN_S
    while not existing_topics(admin).issuperset(names) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)


def existing_topics(admin: HearingAdminClient) -> set[str]:
    """Names of all topics; raises BrokerUnreachable or BrokerRefused when nobody answers."""
    try:
        return set(admin.list_topics(timeout=ASK_TIMEOUT_S).topics)
    except KafkaException as error:
        raise admin.sentence(error) from None


def describe_topic(name: str, admin: AdminClient, settings: Settings) -> TopicFacts:
    """Of a topic that the proxy reads, and writes to when a record has to go on.

    Raises TopicMissing, BrokerRefused, or KafkaException where asking again may help."""
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
                grant([Right("Describe", "topic", name)], settings),
            ) from None
        raise
    if found.authorized_operations and AclOperation.WRITE not in found.authorized_operations:
        raise BrokerRefused(
            f"The proxy's user may not write to the topic {name}, where it rewrites records that "
            "have to wait on.",
            grant([Right("Write", "topic", name)], settings),
        )
    return TopicFacts(name, _id_of(found), len(found.partitions))


class TopicWatch:
    """Notices what becomes of a topic, without waiting for the broker's answers.

    Consumers do not notice that it was deleted and created anew. They read on at their offsets,
    which are those of another log. `on_growth` is told how many partitions there are once some were
    added.
    """

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
        """Called often; asks every TOPIC_EVERY_S. Whether the last answer named another id."""
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
    """Its configuration as the broker words it; empty where that may not be asked."""
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
    """How long a topic keeps its records; None for ever, or where that is not known."""
    kept_ms = int(config.get("retention.ms", "-1"))
    return kept_ms if kept_ms >= 0 else None


def _id_of(topic: TopicDescription) -> str:
    """Kafka's tools print ids in the alphabet that is safe in file names; the client does not."""
    return str(topic.topic_id).replace("+", "-").replace("/", "_")
