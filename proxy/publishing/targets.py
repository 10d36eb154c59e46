"""Questions to the broker about target topics and their unavailable partitions. Asking never
creates a topic, even with auto.create.topics.enable."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple

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


# A partition is unavailable without a leader, or with too few replicas in sync.

ANSWER_TIMEOUT_S: Final = 1.0
ASKED_ONE_BY_ONE: Final = 20
"""For more topics than this it is cheaper to ask about all topics of the cluster."""
LOGGED_AT_ONCE: Final = 20


class PartitionState(NamedTuple):
    """The broker's metadata of one partition."""

    number: int
    has_leader: bool
    in_sync: int
    replicas: int


def listed_states(admin: AdminClient, topics: set[str]) -> dict[str, list[PartitionState]]:
    """Read metadata from any broker. The answer may lack topics. The topics must exist, because a
    question about a missing topic can create it."""
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


def read_configs(
    admin: AdminClient, topics: Iterable[str], timeout_s: float, level: int, unknown: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Ask for the settings of topics. If the broker refuses some, log the text `unknown`."""
    wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    answers = admin.describe_configs(wanted, request_timeout=timeout_s) if wanted else {}
    for resource, answer in answers.items():
        try:
            yield resource.name, answer.result()
        except KafkaException as error:
            log.log(level, unknown, topic=resource.name, why=error.args[0].str())


class UnavailablePartitions:
    """Finds unavailable partitions. Logs when a partition becomes unavailable, and available again.
    Asks for min.insync.replicas each time, because an operator may change it. If the proxy has no
    right to see this setting, 1 is assumed."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._least_in_sync: dict[str, int] = {}
        self._said: dict[str, Mapping[int, str]] = {}

    def of(self, states: Mapping[str, list[PartitionState]]) -> dict[str, dict[int, str]]:
        lacking = {
            topic
            for topic, found in states.items()
            if any(one.has_leader and one.in_sync < one.replicas for one in found)
        }
        for topic, config in read_configs(
            self._admin, lacking, ANSWER_TIMEOUT_S, logging.INFO, "min.insync.replicas not known"
        ):
            self._least_in_sync[topic] = int(config["min.insync.replicas"].value)
        unavailable = {
            topic: dict(_reasons(found, self._least_in_sync.get(topic, 1)))
            for topic, found in states.items()
        }
        for topic, reasons in unavailable.items():
            self._say(topic, reasons)
        return unavailable

    def clear(self) -> None:
        self._least_in_sync.clear()
        self._said.clear()

    def _say(self, topic: str, reasons: Mapping[int, str]) -> None:
        said = self._said.get(topic, {})
        news = [(number, why) for number, why in reasons.items() if said.get(number) != why]
        for number, why in news[:LOGGED_AT_ONCE]:
            log.warning("partition unavailable", topic=topic, partition=number, why=why)
        if (more := len(news) - LOGGED_AT_ONCE) > 0:
            log.warning("more partitions unavailable", topic=topic, partitions=more)
        if back := sorted(said.keys() - reasons.keys()):
            log.info("partitions available again", topic=topic, partitions=back[:LOGGED_AT_ONCE])
        self._said[topic] = reasons
        if not reasons:
            del self._said[topic]


def _reasons(states: Iterable[PartitionState], least_in_sync: int) -> Iterator[tuple[int, str]]:
    for number, has_leader, in_sync, replicas in states:
        if not has_leader:
            yield number, "has no leader"
        elif in_sync < min(least_in_sync, replicas):
            least = f"min.insync.replicas is {least_in_sync}"
            yield number, f"has {in_sync} of {replicas} replicas in sync, and {least}"


MISSING_FOR_MS: Final = 5_000
"""After this time the broker is asked again about a topic that cannot be written to."""
KNOWN_FOR_MS: Final = 60_000
DOUBTED_AFTER_MS: Final = 5_000
"""After this time an answer is doubted, because the topic may have got more partitions."""
ASKED_AT_ONCE: Final = 500
REMEMBERED: Final = 100_000
ASK_TIMEOUT_S: Final = 10.0
FIRST_ASK_TIMEOUT_S: Final = 1.0
RENEWED_WITHIN_MS: Final = 15_000
"""While the broker is asked again, the old answer is valid for this time (over ASK_TIMEOUT_S)."""
UNKNOWN: Final = "target-unknown"
UNANSWERED: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT})
CREATED_ASKED_TIMES: Final = 20
CREATED_PAUSE_S: Final = 0.05


class Targets:
    """Keeps `known` up to date. `create` makes a missing topic, and returns None. If `create`
    fails, it returns the reason, or "" if the proxy may not create topics."""

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
        self._waited_for_ms: dict[str, int] = {}
        """For each topic: the time of the last question that waited for its answer."""
        self._renewed: dict[str, Future[TopicDescription]] = {}
        self._tried_until_ms: dict[str, int] = {}
        self._untimely_until_ms: dict[str, int] = {}

    def learn(self, topics: set[str], now_ms: int) -> None:
        """Make sure that the answers about `topics` are current, or ask the broker. Answers about
        known topics are renewed without waiting. Old answers are used until new answers arrive."""
        if self.known.untimely or self.known.tried:
            self._try_again(topics, now_ms)
        until_ms, takes = self.known.until_ms, self.known.takes
        old = [topic for topic in topics if until_ms.get(topic, 0) <= now_ms]
        since_ms = now_ms - KNOWN_FOR_MS
        renewed = [topic for topic in old if until_ms.get(topic, 0) > since_ms and takes(topic)]
        self._renew(renewed, now_ms)
        stale = [topic for topic in old if until_ms.get(topic, 0) <= now_ms]
        if len(until_ms) + len(stale) > REMEMBERED:
            self._forget_all()
            stale = list(topics)
        self._ask(stale, now_ms)
        self._create_missing(stale, now_ms)
        self.known.are_awaited = bool(self._renewed)

    def ask_again(self, topics: Iterable[str], now_ms: int) -> bool:
        """Ask about topics with answers older than DOUBTED_AFTER_MS. Return whether there is such
        a topic. Raises KafkaException if there is no answer, old or new."""
        since_ms = now_ms - DOUBTED_AFTER_MS
        old = [topic for topic in topics if self._waited_for_ms.get(topic, since_ms) <= since_ms]
        self._ask(old, now_ms)
        return bool(old)

    def learn_rules(self, topics: Iterable[str]) -> None:
        """Ask for the rules of topics. Without the right to ask, sizes are found by trying."""
        wanted = [topic for topic in topics if topic not in self.known.rules]
        for topic, config in read_configs(
            self._admin, wanted, ASK_TIMEOUT_S, logging.WARNING, "rules of a topic not known"
        ):
            is_compacted = "compact" in config["cleanup.policy"].value
            largest_bytes = int(config["max.message.bytes"].value)
            self.known.rules[topic] = TopicRules(largest_bytes, is_compacted)

    def find_unavailable(self, topics: set[str], now_ms: int) -> bool:
        """Ask which partitions are unavailable, because records do not arrive. Return whether
        targets have some. Unavailable partitions of the proxy's own topics are only logged."""
        existing = {topic for topic in topics if self.known.refusal(topic) is None}
        asked = existing | self.known.unavailable.keys()
        for topic, reasons in self._unavailable.of(listed_states(self._admin, asked)).items():
            if self.known.takes(topic) or topic in self.known.unavailable:
                self._note_unavailable(topic, reasons, now_ms)
        return bool(self.known.unavailable)

    def forget(self, topics: Iterable[str]) -> None:
        """Ask about these topics again next time, because the broker contradicted the answers."""
        for topic in topics:
            self.known.until_ms.pop(topic, None)
            self._renewed.pop(topic, None)
            self.known.rules.pop(topic, None)

    def _forget_all(self) -> None:
        self._waited_for_ms.clear()
        self._tried_until_ms.clear()
        self._untimely_until_ms.clear()
        self._renewed.clear()
        self.known.clear()
        self._unavailable.clear()

    def _try_again(self, topics: set[str], now_ms: int) -> None:
        """Drop old refusals of sizes and timestamps. The broker does not say when they end."""
        for topic in topics & self.known.untimely.keys():
            if self._untimely_until_ms.setdefault(topic, now_ms + MISSING_FOR_MS) <= now_ms:
                del self.known.untimely[topic], self._untimely_until_ms[topic]
        for topic in topics & self.known.tried.keys():
            if self._tried_until_ms.setdefault(topic, now_ms + KNOWN_FOR_MS) <= now_ms:
                self.known.try_sizes_again(topic)
                del self._tried_until_ms[topic]

    def _create_missing(self, topics: Iterable[str], now_ms: int) -> None:
        """Create the topics that may be created. For a second, ask until the broker knows them."""
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

    def _renew(self, topics: Sequence[str], now_ms: int) -> None:
        """Ask about these topics without waiting, and note the answers that have come."""
        for some in _pieces(topics):
            self._renewed |= self._describe(some, ASK_TIMEOUT_S)
        self.known.until_ms |= dict.fromkeys(topics, now_ms + RENEWED_WITHIN_MS)
        come = {topic: answer for topic, answer in self._renewed.items() if answer.done()}
        for topic, answer in come.items():
            del self._renewed[topic]
            if _is_unanswered(answer):
                self.known.until_ms.pop(topic, None)
        self._note_answers({t: one for t, one in come.items() if not _is_unanswered(one)}, now_ms)

    def _ask(self, topics: Sequence[str], now_ms: int) -> None:
        """Ask about these topics and wait. Only the controller describes topics. If it is gone, the
        client would wait for minutes. A question about any existing topic shows the client a new
        controller."""
        for some in _pieces(topics):
            self._waited_for_ms |= dict.fromkeys(some, now_ms)
            for timeout_s in (FIRST_ASK_TIMEOUT_S, ASK_TIMEOUT_S):
                answers = self._describe(some, timeout_s)
                if not any(map(_is_unanswered, answers.values())):
                    break
                known = filter(self.known.takes, self.known.partitions)
                with suppress(KafkaException):
                    self._admin.list_topics(next(known, None), ANSWER_TIMEOUT_S)
            self._note_answers(answers, now_ms)

    def _describe(self, topics: list[str], timeout_s: float) -> dict[str, Future[TopicDescription]]:
        answers: dict[str, Future[TopicDescription]] = self._admin.describe_topics(
            TopicCollection(topics), include_authorized_operations=True, request_timeout=timeout_s
        )
        return answers

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
        states = {
            topic: [
                PartitionState(p.id, p.leader is not None, len(p.isr), len(p.replicas))
                for p in description.partitions
            ]
            for topic, description in described.items()
        }
        for topic, reasons in self._unavailable.of(states).items():
            self._note_unavailable(topic, reasons, now_ms)

    def _note_error(self, topic: str, error: KafkaError, now_ms: int) -> None:
        code = error.code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            why = f"the topic {topic} does not exist: create it"
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
            self.known.until_ms[topic] = now_ms + MISSING_FOR_MS

    def _note(self, topic: str, partitions: int, refusal: Rejection | None, now_ms: int) -> None:
        self.known.learn(topic, partitions, refusal)
        self.known.until_ms[topic] = now_ms + (MISSING_FOR_MS if refusal else KNOWN_FOR_MS)


def _pieces(topics: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(topics), ASKED_AT_ONCE):
        yield list(topics[start : start + ASKED_AT_ONCE])


def _is_unanswered(answer: Future[TopicDescription]) -> bool:
    error = answer.exception()
    return isinstance(error, KafkaException) and error.args[0].code() in UNANSWERED


def _not_authorised(topic: str, what: str) -> Rejection:
    return Rejection(
        "not-authorised", f"the proxy's user {what} ({topic}): grant it Write and Describe"
    )
