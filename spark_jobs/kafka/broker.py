"""Connection settings for Kafka, and questions that the audit asks the broker without Spark."""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from proxy.errors import ProxyError
from proxy.logins import MSK, is_msk, login_words, with_login, with_secrets, words
from spark_jobs.records.headers import INTERNAL_PREFIX
from spark_jobs.runtime.errors import AuditError, BrokerUnreachable, TopicMissing

# `--kafka key=value` takes librdkafka's keys. Keys of the connection (TLS, SASL) are translated for
# Spark's Java client, and files are read, so that no worker of Spark needs them. Keys with the
# prefix `java.` are for the Java client alone (docs/audit.md#tls-and-logins).

VARIABLE: Final = "KAFKA_DELAY_PROXY_AUDIT_KAFKA"
JAVA_ALONE: Final = "java."
SAME: Final = ("security.protocol", "client.id")
LOGIN: Final = "org.apache.kafka.common.security"
TOKENS: Final = f"{LOGIN}.oauthbearer.OAuthBearer"
AMAZON: Final = "software.amazon.msk.auth.iam"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
PASSWORD_OPTIONS: Final = {"sasl.username": "username", "sasl.password": "password"}
TOKEN_OPTIONS: Final = {
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
MSK_OPTIONS: Final = {"role": "awsRoleArn", "profile": "awsProfileName"}
"""librdkafka's or our names -> options of Java's login modules."""
TEXTS: Final = {
    "ssl.ca": ("ssl.truststore.certificates", "ssl.truststore.type"),
    "ssl.certificate": ("ssl.keystore.certificate.chain", "ssl.keystore.type"),
    "ssl.key": ("ssl.keystore.key", "ssl.keystore.type"),
}
"""librdkafka's name without `.location` or `.pem` -> Java's names for the text and its format."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Connection settings for both clients."""

    bootstrap: str
    librdkafka: Mapping[str, Any]
    java: Mapping[str, str]


def kafka_settings(bootstrap: str, pairs: Iterable[str] = ()) -> KafkaSettings:
    """Return the settings of the environment, overridden by `pairs`. Raises `AuditError`."""
    given = _from_environment()
    for text in pairs:
        key, separator, value = text.partition("=")
        if not (key and separator):
            raise AuditError(
                f"--kafka {text} is not key=value.", "Write e.g. security.protocol=SSL."
            )
        given[key.strip()] = value
    alone = {key: value for key, value in given.items() if key.startswith(JAVA_ALONE)}
    own = {key: value for key, value in given.items() if key not in alone}
    alone = {key.removeprefix(JAVA_ALONE): value for key, value in alone.items()}
    servers = {"bootstrap.servers": bootstrap}
    try:
        own = with_secrets(own)
        librdkafka = with_login({**own, **servers})
    except ProxyError as error:
        raise AuditError(error.found, error.remedy) from None
    same = {key: own[key] for key in SAME if key in own}
    java = same | _login(own) | _certificates(own) | _trust(own) | alone
    return KafkaSettings(bootstrap, librdkafka, {**java, **servers})


def _from_environment() -> dict[str, str]:
    """Read the settings that `kafka-delay-proxy audit` passes on in the environment.
    There other users of the machine cannot read passwords.
    """
    try:
        found = json.loads(os.environ.get(VARIABLE) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AuditError(
            f"The environment's {VARIABLE} is not a JSON object.", "Correct or unset it."
        )
    return {str(key): str(value) for key, value in found.items()}


def _login(own: Mapping[str, str]) -> dict[str, str]:
    mechanism = own.get("sasl.mechanism") or own.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    if is_msk(own):
        named = _chosen(login_words(own), MSK_OPTIONS)
        return {
            "sasl.mechanism": MSK,
            **_module(f"{AMAZON}.IAMLoginModule", named),
            "sasl.client.callback.handler.class": f"{AMAZON}.IAMClientCallbackHandler",
        }
    found = {"sasl.mechanism": mechanism}
    if "sasl.username" in own:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        names = {"username": "", "password": ""} | _chosen(own, PASSWORD_OPTIONS)
        return found | _module(f"{LOGIN}.{module}", names)
    if ENDPOINT in own:
        extensions = words(own.get("sasl.oauthbearer.extensions", "").replace(",", " "))
        options = {f"extension_{name}": text for name, text in extensions.items()}
        found |= _module(f"{TOKENS}LoginModule", _chosen(own, TOKEN_OPTIONS) | options)
        found |= {"sasl.login.callback.handler.class": f"{TOKENS}LoginCallbackHandler"}
        found |= {ENDPOINT: own[ENDPOINT]}
    return found


def _chosen(own: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {java: own[name] for name, java in names.items() if name in own}


def _module(name: str, options: Mapping[str, str]) -> dict[str, str]:
    shown = {key: text.replace("\\", "\\\\").replace('"', '\\"') for key, text in options.items()}
    said = " ".join([f"{name} required", *(f'{key}="{text}"' for key, text in shown.items())])
    return {"sasl.jaas.config": f"{said};"}


def _certificates(own: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for key, (java, store) in TEXTS.items():
        if f"{key}.location" in own:
            found[java] = _text_of(Path(own[f"{key}.location"]))
        elif f"{key}.pem" in own:
            found[java] = own[f"{key}.pem"]
        if java in found:
            found[store] = "PEM"
    if "ssl.key.password" in own:
        found["ssl.key.password"] = own["ssl.key.password"]
    return found


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AuditError(
            f"The file {path} cannot be read as PEM: {error}.", "Correct --kafka ssl.*.location."
        ) from None


def _trust(own: Mapping[str, str]) -> dict[str, str]:
    if own.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise AuditError(
            "The Java client inside Spark always verifies the broker's certificate.",
            "Give the certificate in --kafka ssl.ca.location=FILE.",
        )
    algorithm = own.get("ssl.endpoint.identification.algorithm")
    if algorithm is None:
        return {}
    return {"ssl.endpoint.identification.algorithm": "" if algorithm == "none" else algorithm}


# Errors of the client become `AuditError`s. The client's log is suppressed. If no broker answers,
# the last error in the log is shown.

READER: Final = "kafka-delay-proxy-audit"
"""The `group.id` of consumers that read topics. They never commit."""
PRINTS_RIGHTS: Final = "`kafka-delay-proxy rights --for audit` prints the commands."
ASK_TIMEOUT_S: Final = 15.0
SILENT_ASKS: Final = 12
"""A reader fails if it gets no record in this many waits in a row, each of ASK_TIMEOUT_S."""
SURE_ASKS: Final = 2
"""After this many waits without a record, another client asks whether the broker answers.
The reader's own client answers no question while it unpacks a large batch, which takes long on a
busy machine.
"""
LED_WITHIN_S: Final = 15.0
AGAIN_AFTER_S: Final = 0.2
AT_ONCE: Final = 500
SILENT: Final = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
UNREADABLE_BATCH: Final = {
    KafkaError._BAD_COMPRESSION,  # noqa: SLF001
    KafkaError._BAD_MSG,  # noqa: SLF001
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001
}
"""Errors of record batches that are damaged, too large for the client, or of an unknown kind."""
LEADER_AWAY: Final = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
NOT_GIVEN: Final = KafkaError(
    KafkaError.OFFSET_NOT_AVAILABLE, "the begin or the end of a partition is unknown"
)
"""librdkafka may give no offset and no error while a leader is away.
Its OFFSET_INVALID would make a full topic look empty.
"""
Answer = TypeVar("Answer")
Place = tuple[str, int]
"""Topic and partition."""


class Broker:
    """A connection to ask the broker. It joins no consumer group and changes nothing."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._last_error = settings, ""
        quiet = {"logger": _quiet_logger(), "error_cb": self._hear}
        self._config: dict[str, Any] = {**settings.librdkafka, **quiet}
        try:
            self._admin = AdminClient(self._config)
        except KafkaException as error:
            raise BrokerUnreachable(
                f"The Kafka client refuses its settings: {error.args[0].str()}.", "Correct --kafka."
            ) from None

    def topics(self) -> dict[str, int]:
        """Return partition counts by topic, without internal topics."""
        found = self.ask(lambda: self._admin.list_topics(timeout=ASK_TIMEOUT_S)).topics
        return {
            name: len(topic.partitions)
            for name, topic in found.items()
            if not name.startswith(INTERNAL_PREFIX)
        }

    def matching(self, patterns: Iterable[str]) -> list[str]:
        """Return topics that match these names or patterns, sorted. Raises `TopicMissing`."""
        existing, chosen = sorted(self.topics()), set[str]()
        for pattern in patterns:
            found = [name for name in existing if fnmatchcase(name, pattern)]
            if not found:
                raise TopicMissing(
                    f"No topic at {self._settings.bootstrap} is called {pattern}.",
                    "Correct --target; the broker knows: " + ", ".join(existing[:20]) + ".",
                )
            chosen.update(found)
        return sorted(chosen)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the id of each topic that exists, written as Kafka's tools write ids."""
        found = {}
        for first in range(0, len(topics), AT_ONCE):
            asked = TopicCollection([*topics[first : first + AT_ONCE]])
            answers = self._admin.describe_topics(asked, request_timeout=ASK_TIMEOUT_S)
            for topic, answer in answers.items():
                with suppress(TopicMissing):
                    topic_id = str(self.ask(answer.result).topic_id)
                    found[topic] = topic_id.replace("+", "-").replace("/", "_")
        return found

    def compacted(self, topics: Sequence[str]) -> set[str]:
        """Return the compacted topics. Topics whose settings the user may not read are left out."""
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found = set()
        for first in range(0, len(asked), AT_ONCE):
            part = asked[first : first + AT_ONCE]
            answers = self._admin.describe_configs(part, request_timeout=ASK_TIMEOUT_S)
            for one, answer in answers.items():
                with suppress(KafkaException):
                    policy = answer.result().get("cleanup.policy")
                    if policy and "compact" in (policy.value or ""):
                        found.add(one.name)
        return found

    def log_starts(self, places: Sequence[Place]) -> dict[Place, int]:
        return self._offsets(places, EARLIEST)

    def high_watermarks(self, places: Sequence[Place]) -> dict[Place, int]:
        """Return the end of each partition, open transactions included."""
        return self._offsets(places, LATEST)

    def stable_ends(self, places: Sequence[Place]) -> dict[Place, int]:
        """Return the last stable offsets, where readers of committed records end."""
        return self._offsets(places, LATEST, IsolationLevel.READ_COMMITTED)

    def offsets_at(self, places: Sequence[Place], at_ms: int) -> dict[Place, int]:
        """Return the first offset with a timestamp of `at_ms` or later, or -1 if there is none."""
        return self._offsets(places, OffsetSpec.for_timestamp(at_ms))

    def consumer(self, group_id: str) -> Consumer:
        """Return a consumer of committed records that never commits. The caller closes it."""
        return Consumer(
            {
                "fetch.wait.max.ms": "50",
                **self._config,
                "group.id": group_id,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

    def messages(
        self, starts: Mapping[Place, int], *, take_unreadable: bool = False
    ) -> Iterator[tuple[Place, Message]]:
        """Yield committed records from these offsets on.
        At the end of each partition, yield a message with an error. With `take_unreadable`, do so
        at an unreadable batch, too. Raises `AuditError` for other errors.
        """
        if not starts:
            return
        ends = {KafkaError._PARTITION_EOF} | (UNREADABLE_BATCH if take_unreadable else set())
        with closing(self.consumer(READER)) as consumer:
            if len(starts) == 1:
                # A client that does not know the leader yet waits 500 ms before its first request.
                ((topic, _partition),) = starts
                with suppress(BrokerUnreachable):
                    self.ask(partial(consumer.list_topics, topic, ASK_TIMEOUT_S))
            consumer.assign([TopicPartition(*place, at) for place, at in starts.items()])
            silent = 0
            while True:
                message = consumer.poll(ASK_TIMEOUT_S)
                if message is None:
                    silent += 1
                    if silent == SILENT_ASKS:
                        raise self.explained(KafkaError(KafkaError._TIMED_OUT))
                    if silent > SURE_ASKS:
                        self.ask(partial(self._admin.list_topics, timeout=ASK_TIMEOUT_S))
                    continue
                silent = 0
                error = message.error()
                if error is not None and error.code() not in ends:
                    raise self.explained(error)
                yield (message.topic() or "", message.partition() or 0), message

    def first_messages(
        self, starts: Mapping[Place, int], *, take_unreadable: bool = False
    ) -> dict[Place, Message]:
        """Return the first message at or after each offset: a record, or the error at the end."""
        found: dict[Place, Message] = {}
        for place, message in self.messages(starts, take_unreadable=take_unreadable):
            found.setdefault(place, message)
            if len(found) == len(starts):
                break
        return found

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return the answer. Raises `BrokerUnreachable` or `TopicMissing` if the client fails."""
        try:
            return question()
        except KafkaException as failed:
            raise self.explained(failed.args[0]) from None

    def explained(
        self, error: KafkaError, group_id: str = READER
    ) -> BrokerUnreachable | TopicMissing:
        """Return the `AuditError` for an error of a client in the group `group_id`."""
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return TopicMissing(f"A topic was deleted: {error.str()}.", "Run the audit again.")
        self._admin.poll(0)
        bootstrap, reason = self._settings.bootstrap, self._last_error or error.str()
        if error.code() in SILENT:
            return BrokerUnreachable(
                f"No Kafka broker answers at {bootstrap}: {reason}.",
                "Start the broker, or correct --bootstrap (and --kafka for TLS and logins).",
            )
        if error.code() in LEADER_AWAY:
            return BrokerUnreachable(
                f"A partition has no leader at present: {error.str()}.",
                "Run the audit again in a moment.",
            )
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return BrokerUnreachable(
                f"The audit's user has no right to see the group {group_id} at {bootstrap}.",
                f"Grant it Describe on this group. {PRINTS_RIGHTS}",
            )
        return BrokerUnreachable(
            f"The broker at {bootstrap} refuses this: {error.str().rstrip('.')}.",
            "The audit's user needs Read on the topics, and Describe on the groups. "
            f"{PRINTS_RIGHTS}",
        )

    def _offsets(
        self,
        places: Sequence[Place],
        asked: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[Place, int]:
        """Return offsets. Repeat the question until each partition has a leader."""
        request = {TopicPartition(*place): asked for place in places}
        until_s = time.monotonic() + LED_WITHIN_S
        while request:
            try:
                answers: Mapping[TopicPartition, Future[Any]] = self._admin.list_offsets(
                    request, isolation_level=isolation, request_timeout=ASK_TIMEOUT_S
                )
                found = {
                    (at.topic, at.partition): int(one.result().offset)
                    for at, one in answers.items()
                }
            except KafkaException as failed:
                error = failed.args[0]
            else:
                if min(found.values()) >= -1:
                    return {place: found[place] for place in places}
                error = NOT_GIVEN
            if error.code() not in LEADER_AWAY or time.monotonic() > until_s:
                raise self.explained(error)
            time.sleep(AGAIN_AFTER_S)
            self.topics()
        return {}

    def _hear(self, error: KafkaError) -> None:
        self._last_error = error.str()


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("spark_jobs.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
