"""Settings of confluent_kafka's clients, places of records, and errors about missing rights."""

import shlex
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, NamedTuple, TypeAlias, cast

from confluent_kafka import KafkaError, Message

from kafka_delay.errors import BrokerError, ConfigRefused
from kafka_delay.request import WireHeaders

Settings: TypeAlias = Mapping[str, Any]
"""Settings of confluent_kafka: librdkafka's names, and Python callbacks."""
Partition: TypeAlias = tuple[str, int]
"""(topic, partition)."""

PARTITIONER: Final = "partitioner"
BY_JAVA_HASH: Final = ("murmur2_random", "murmur2")
TRANSACTIONAL_ID: Final = "transactional.id"
PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
"""The address schemes that librdkafka accepts."""
MOST_IN_FLIGHT: Final = 5
"""An idempotent producer may have at most this many requests in flight."""
NOTICE_TOPICS_WITHIN_MS: Final = 10_000
"""Interval at which a consumer looks for new topics. librdkafka's default is five minutes."""
CONNECTION: Final = (
    *("bootstrap.servers", "metadata.broker.list", "client.", "security.", "sasl.", "ssl."),
    *("socket.", "broker.", "reconnect.", "enable.sasl.", "enable.ssl.", "oauth_cb", "logger"),
)
"""Prefixes of the settings that all kinds of clients share."""
REACH: Final = "Check that the brokers in bootstrap.servers can be reached"

_read_headers = methodcaller("headers")
"""Return a message's headers. Raises if a name is not UTF-8.

A direct call of `message.headers()` would raise the error only in some later call.
"""


class UnreadableHeaders(Exception):
    """A header's name is not UTF-8, so the client library cannot read any header."""


class Place(NamedTuple):
    """The topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> Partition:
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def place_of(message: Message) -> Place:
    """Return the place of a message."""
    return Place(message.topic() or "", cast(int, message.partition()), cast(int, message.offset()))


def headers_of(message: Message) -> WireHeaders:
    """Return a message's headers. Raises UnreadableHeaders."""
    try:
        headers: WireHeaders | None = _read_headers(message)
        return headers or []
    except (SystemError, UnicodeDecodeError) as error:
        raise UnreadableHeaders(f"{place_of(message)}: a header's name is not UTF-8") from error


def last_header(headers: WireHeaders, name: str) -> bytes | None:
    """Return the last header of that name, or None."""
    return next((value for key, value in reversed(headers) if key == name), None)


def producer_settings(given: Settings) -> dict[str, Any]:
    """Return a producer's settings with Java's partitioner and safe defaults.

    Raises ConfigRefused.
    """
    _need_brokers(given)
    for settings in _levels(given):
        chosen = settings.get(PARTITIONER, settings.get("partitioner_callback", BY_JAVA_HASH[0]))
        if chosen not in BY_JAVA_HASH:
            raise ConfigRefused(
                f"partitioner is {chosen!r}: a cancel meets its record only if both use Java's "
                f"partitioner ({BY_JAVA_HASH[0]}); leave partitioner out"
            )
    if str(given.get("delivery.report.only.error", False)).lower() == "true":
        raise ConfigRefused(
            "delivery.report.only.error is on: there would be no receipts; leave it out"
        )
    if _acks(given) == "0":
        raise ConfigRefused(
            "acks is 0: the broker would confirm no record, so there would be no receipts; leave "
            "acks out"
        )
    return {PARTITIONER: BY_JAVA_HASH[0], **_durability(given), **given}


def consumer_settings(given: Settings, group: str) -> dict[str, Any]:
    """Return the settings of a consumer that commits its offsets itself.

    Raises ConfigRefused.
    """
    _need_brokers(given)
    fixed = {
        "group.id": (group, "give the group in the argument `group`"),
        "isolation.level": (
            "read_committed",
            "otherwise records of aborted transactions would be handled",
        ),
        "enable.auto.commit": ("false", "the client commits the offsets of handled records"),
        "auto.offset.reset": (
            "earliest",
            (
                "otherwise a new group would miss records before its first commit; to skip old "
                "records, set the group's offsets with kafka-consumer-groups --reset-offsets"
            ),
        ),
    }
    for name, (value, because) in fixed.items():
        for settings in _levels(given):
            found = str(settings.get(name, value))
            if found.lower() != value.lower():
                raise ConfigRefused(f"{name} is {found!r}, it must be {value!r}: {because}")
    wanted = {name: value for name, (value, _) in fixed.items()} | {"enable.auto.commit": False}
    return {"topic.metadata.refresh.interval.ms": NOTICE_TOPICS_WITHIN_MS, **given, **wanted}


def connection_settings(given: Settings) -> dict[str, Any]:
    """Return the connection settings. Raises ConfigRefused."""
    refuse_no_mapping(given)
    return {name: value for name, value in given.items() if name.startswith(CONNECTION)}


def refuse_no_mapping(given: object) -> None:
    """Raise ConfigRefused unless the settings are a mapping."""
    if not isinstance(given, Mapping):
        raise ConfigRefused(
            f"the settings are a {type(given).__name__}: give a dict, for example "
            "{'bootstrap.servers': 'localhost:9092'}"
        )


def need_all_acks(given: Settings, because: str) -> None:
    """Raise ConfigRefused unless `acks` is `all`."""
    if (acks := _acks(given)) != "all":
        raise ConfigRefused(f"acks is {acks}, it must be 'all': {because}; leave acks out")


def grant(settings: Settings, operations: Sequence[str], kind: str, name: str) -> str:
    """Return the command line that grants these operations."""
    given = settings.get("bootstrap.servers", settings.get("metadata.broker.list", "HOST:PORT"))
    servers = [server.strip().rpartition("://")[2] for server in str(given).split(",")]
    user = settings.get("sasl.username", settings.get("sasl.user"))
    protocol = str(settings.get("security.protocol", "plaintext")).lower()
    login = "" if user is None and protocol == "plaintext" else " --command-config admin.properties"
    principal = f"User:{user or 'NAME'}"
    asked = " ".join(f"--operation {operation}" for operation in operations)
    return (
        f"Grant it: kafka-acls.sh --bootstrap-server {shlex.quote(','.join(servers))}{login} --add "
        f"--allow-principal {shlex.quote(principal)} {asked} --{kind} {shlex.quote(name)}"
    )


def broker_error(
    error: KafkaError, settings: Settings, group: str, topics: Sequence[str]
) -> BrokerError:
    """Return the error of a consumer, with its remedy."""
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        remedy = grant(settings, ["Read"], "group", group)
    elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        named = [topic for topic in topics if topic in error.str()] or topics
        remedy = ". ".join(grant(settings, ["Read", "Describe"], "topic", one) for one in named)
    elif error.code() == KafkaError.FENCED_INSTANCE_ID:
        remedy = "Another process has the same group.instance.id: give each one its own"
    else:
        remedy = REACH
    return BrokerError(error, f"group {group}: {error.str()}. {remedy}")


def _levels(given: Settings) -> Iterator[Settings]:
    """Yield the settings, and the nested settings of older programs."""
    yield given
    if isinstance(nested := given.get("default.topic.config"), Mapping):
        yield nested


def _need_brokers(given: Settings) -> None:
    refuse_no_mapping(given)
    if not {"bootstrap.servers", "metadata.broker.list", "test.mock.num.brokers"} & given.keys():
        raise ConfigRefused(
            "the settings name no broker: add 'bootstrap.servers', for example 'localhost:9092'"
        )
    for name in ("bootstrap.servers", "metadata.broker.list"):
        for address in str(given.get(name, "")).split(","):
            scheme, mark, rest = address.strip().rpartition("://")
            if (mark and scheme.upper() not in PROTOCOLS) or "/" in rest:
                shown = address.strip().rpartition("@")[2]  # a login stays out of errors
                raise ConfigRefused(
                    f"{name} names {shown!r}: write host:port, without a scheme and without a path"
                )


def _durability(given: Settings) -> dict[str, Any]:
    """Return acks=all and idempotence, unless `given` contradicts them."""
    acks = _acks(given)
    in_flight = given.get("max.in.flight.requests.per.connection", given.get("max.in.flight", 0))
    retries = given.get("retries", given.get("message.send.max.retries", 1))
    all_named = {} if {"acks", "request.required.acks"} & given.keys() else {"acks": acks}
    may_be_idempotent = acks == "all" and int(in_flight) <= MOST_IN_FLIGHT and int(retries) > 0
    return {**all_named, "enable.idempotence": True} if may_be_idempotent else all_named


def _acks(given: Settings) -> str:
    settings = ChainMap(*map(dict, _levels(given)))
    found = str(settings.get("acks", settings.get("request.required.acks", "all")))
    return "all" if found == "-1" else found
