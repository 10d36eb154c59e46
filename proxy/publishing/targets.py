"""Target topics: what is known of them, and which of their partitions can be written to."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
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

from proxy.dispatch.known_targets import NONE, KnownTargets, TopicRules
from proxy.protocol.outcomes import Rejection

log = structlog.get_logger(__name__)


# Which partitions cannot be written to now: without a leader, or with too few replicas in sync.

ANSWER_TIMEOUT_S: Final = 1.0
ASKED_ONE_BY_ONE: Final = 20
"""Of more topics than that it takes less to ask for all there are."""
LOGGED_AT_ONCE: Final = 20


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


# What the broker says of target topics: whether they exist, how many partitions, which of these
# can be written to now, whether the proxy may. Asked in bulk and remembered for a while, never
# once a record.
#
# Asking never creates a topic, whatever the broker's auto.create.topics.enable says.

MISSING_FOR_MS: Final = 5_000
"""A topic created meanwhile is found after this time at the latest."""
KNOWN_FOR_MS: Final = 60_000
DOUBTED_AFTER_MS: Final = 5_000
"""A topic may have got more partitions since it was asked about."""
ASKED_AT_ONCE: Final = 500
REMEMBERED: Final = 100_000
ASK_TIMEOUT_S: Final = 10.0
FIRST_ASK_TIMEOUT_S: Final = 1.0
RENEWED_WITHIN_MS: Final = 15_000
"""By then an answer that is not waited for has come, or none will (ASK_TIMEOUT_S)."""
UNKNOWN: Final = "target-unknown"
UNANSWERED: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT})
CREATED_ASKED_TIMES: Final = 20
CREATED_PAUSE_S: Final = 0.05


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
        self._unavailable = UnavailablePartitions(admin)
        self._known_until_ms: dict[str, int] = {}
        self._waited_for_ms: dict[str, int] = {}
        """When a topic was last asked about and the answer waited for: it is no older than that."""
        self._renewed: dict[str, Future[TopicDescription]] = {}
        self._tried_until_ms: dict[str, int] = {}
        self._untimely_until_ms: dict[str, int] = {}

    def find_unavailable(self, topics: set[str], now_ms: int) -> bool:
        """Ask at once which partitions cannot be written to, when what was produced to these topics
        does not arrive; whether there are any, of these or of topics known to have some.

        Of topics that were never looked up, the proxy's own, it is said in the log, and nothing
        else can be done.
        """
        existing = {topic for topic in topics if self.known.refusal(topic) is None}
        asked = existing | self.known.unavailable.keys()
        for topic, reasons in self._unavailable.of(listed_states(self._admin, asked)).items():
            if self.known.takes(topic) or topic in self.known.unavailable:
                self._note_unavailable(topic, reasons, now_ms)
        return bool(self.known.unavailable)

    def learn(self, topics: set[str], now_ms: int) -> None:
        """Make sure that all of `topics` are known as they are now; ask the broker if not.

        What is said of those that take records is renewed without waiting: until the answer is
        there they are taken for what they were.
        """
        self._try_again(topics, now_ms)
        until_ms = self._known_until_ms
        old = [topic for topic in topics if until_ms.get(topic, 0) <= now_ms]
        if not old and not self._renewed:
            return
        self._renew([topic for topic in old if self._may_be_renewed(topic, now_ms)], now_ms)
        stale = [topic for topic in old if until_ms.get(topic, 0) <= now_ms]
        if len(until_ms) + len(stale) > REMEMBERED:
            until_ms.clear()
            self._waited_for_ms.clear()
            self._tried_until_ms.clear()
            self._untimely_until_ms.clear()
            self.known.clear()
            self._unavailable.clear()
            self._renewed.clear()
            stale = list(topics)
        for start in range(0, len(stale), ASKED_AT_ONCE):
            self._ask(stale[start : start + ASKED_AT_ONCE], now_ms)
        self._create_missing(stale, now_ms)

    def ask_again(self, topics: Iterable[str], now_ms: int) -> bool:
        """Ask about those of which the answer may be older than DOUBTED_AFTER_MS; whether any was.

        Without an answer what is known of them stays. Raises KafkaException where nothing is.
        """
        since_ms = now_ms - DOUBTED_AFTER_MS
        old = [topic for topic in topics if self._waited_for_ms.get(topic, since_ms) <= since_ms]
        for start in range(0, len(old), ASKED_AT_ONCE):
            self._ask(old[start : start + ASKED_AT_ONCE], now_ms)
        return bool(old)

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
            self._renewed.pop(topic, None)
            self.known.rules.pop(topic, None)

    def _try_again(self, topics: set[str], now_ms: int) -> None:
        """Nobody says when a topic whose rules may not be asked for takes more, or when a topic
        takes the time of records again."""
        for topic in topics & self.known.untimely.keys():
            if self._untimely_until_ms.setdefault(topic, now_ms + MISSING_FOR_MS) <= now_ms:
                del self.known.untimely[topic], self._untimely_until_ms[topic]
        for topic in topics & self.known.tried.keys():
            if self._tried_until_ms.setdefault(topic, now_ms + KNOWN_FOR_MS) <= now_ms:
                self.known.try_sizes_again(topic)
                del self._tried_until_ms[topic]

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

    def _may_be_renewed(self, topic: str, now_ms: int) -> bool:
        """Whether it was known until a moment ago, and takes records."""
        until_ms = self._known_until_ms.get(topic)
        return until_ms is not None and until_ms + KNOWN_FOR_MS > now_ms and self.known.takes(topic)

    def _renew(self, topics: list[str], now_ms: int) -> None:
        """Ask about these, and note the answers that have come meanwhile."""
        for start in range(0, len(topics), ASKED_AT_ONCE):
            self._renewed |= self._describe(topics[start : start + ASKED_AT_ONCE], ASK_TIMEOUT_S)
        self._known_until_ms |= dict.fromkeys(topics, now_ms + RENEWED_WITHIN_MS)
        come = {topic: answer for topic, answer in self._renewed.items() if answer.done()}
        for topic, answer in come.items():
            del self._renewed[topic]
            if _is_unanswered(answer):
                self._known_until_ms.pop(topic, None)
        self._note_answers({t: one for t, one in come.items() if not _is_unanswered(one)}, now_ms)

    def _ask(self, topics: list[str], now_ms: int) -> None:
        self._waited_for_ms |= dict.fromkeys(topics, now_ms)
        self._note_answers(self._described(topics), now_ms)

    def _note_answers(self, answers: Mapping[str, Future[TopicDescription]], now_ms: int) -> None:
        described: dict[str, TopicDescription] = {}
        for topic, answer in answers.items():
            try:
                described[topic] = answer.result()
            except KafkaException as error:
                self._note_error(topic, error.args[0], now_ms)
        for topic, description in described.items():
            operations = description.authorized_operations
            may_write = not operations or AclOperation.WRITE in operations
            refusal = None if may_write else _not_authorised(topic, "may not write to it")
            self._note(topic, len(description.partitions), refusal, now_ms)
        states = {topic: states_of(description) for topic, description in described.items()}
        for topic, reasons in self._unavailable.of(states).items():
            self._note_unavailable(topic, reasons, now_ms)

    def _described(self, topics: list[str]) -> dict[str, Future[TopicDescription]]:
        """The answers. A client that waits for a controller that is gone has to find another."""
        for timeout_s in (FIRST_ASK_TIMEOUT_S, ASK_TIMEOUT_S):
            answers = self._describe(topics, timeout_s)
            if not any(map(_is_unanswered, answers.values())):
                break
            find_controller(
                self._admin, next(filter(self.known.takes, self.known.partitions), None)
            )
        return answers

    def _describe(self, topics: list[str], timeout_s: float) -> dict[str, Future[TopicDescription]]:
        answers: dict[str, Future[TopicDescription]] = self._admin.describe_topics(
            TopicCollection(topics), include_authorized_operations=True, request_timeout=timeout_s
        )
        return answers

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

    def _note_unavailable(self, topic: str, reasons: Mapping[int, str], now_ms: int) -> None:
        self.known.learn_unavailable(topic, reasons)
        if reasons:
            self._known_until_ms[topic] = now_ms + MISSING_FOR_MS

    def _note(self, topic: str, partitions: int, refusal: Rejection | None, now_ms: int) -> None:
        self.known.learn(topic, partitions, refusal)
        self._known_until_ms[topic] = now_ms + (MISSING_FOR_MS if refusal else KNOWN_FOR_MS)


def _is_unanswered(answer: Future[TopicDescription]) -> bool:
    error = answer.exception()
    return isinstance(error, KafkaException) and error.args[0].code() in UNANSWERED


def _not_authorised(topic: str, what: str) -> Rejection:
    return Rejection(
        "not-authorised", f"the proxy's user {what} ({topic}): grant it Write and Describe"
    )
