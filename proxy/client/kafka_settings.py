"""The settings of the Kafka clients below: sound defaults, and the caller's own win."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from proxy.client.errors import ConfigRefused

Settings: TypeAlias = Mapping[str, Any]
"""Settings as confluent_kafka takes them: librdkafka's names, and Python's callbacks."""

PARTITIONER: Final = "partitioner"
BY_JAVA_HASH: Final = ("murmur2_random", "murmur2")
TRANSACTIONAL_ID: Final = "transactional.id"
PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
"""librdkafka takes these as schemes of addresses, and no others."""
MOST_IN_FLIGHT: Final = 5
NOTICE_TOPICS_WITHIN_MS: Final = 10_000
"""librdkafka's own five minutes are long for a retry topic that was made a moment ago."""
CONNECTION: Final = (
    *("bootstrap.servers", "metadata.broker.list", "client.", "security.", "sasl.", "ssl."),
    *("socket.", "broker.", "reconnect.", "enable.sasl.", "enable.ssl.", "oauth_cb", "logger"),
)
"""How settings begin that say how to reach the broker, whatever one is there for."""


def producer_settings(given: Settings) -> dict[str, Any]:
    """Settings of a producer to the ingress. Raises ConfigRefused.

    Records of one id meet by the hash of their key, so every producer must hash alike: Java's
    murmur2, which other clients can do too.
    """
    _need_brokers(given)
    _refuse_other_partitioners(given)
    if str(given.get("delivery.report.only.error", False)).lower() == "true":
        raise ConfigRefused(
            "delivery.report.only.error is on: there would be no receipts; leave it out"
        )
    if _acks(given) == "0":
        raise ConfigRefused(
            "acks is 0: no broker would say that it has a record, so there would be no receipts; "
            "leave acks out"
        )
    settings: dict[str, Any] = {PARTITIONER: BY_JAVA_HASH[0], **_durability(given), **given}
    return settings


def consumer_settings(given: Settings, group: str) -> dict[str, Any]:
    """Settings of a consumer that commits by itself what has been dealt with.

    Raises ConfigRefused. A group that has never committed begins at the start: beginning at the
    end, it would miss what arrives before its first commit.
    """
    _need_brokers(given)
    _must_be(
        given,
        "isolation.level",
        "read_committed",
        "a reader of aborted transactions would handle records that were never sent",
    )
    _must_be(given, "group.id", group, "the group is an argument of its own")
    _must_be(given, "enable.auto.commit", "false", "offsets are committed once dealt with")
    _must_be(
        given,
        "auto.offset.reset",
        "earliest",
        "a group that begins at the end misses what comes before its first commit; to skip old "
        "records, set the group's offsets with kafka-consumer-groups --reset-offsets",
    )
    return {
        "topic.metadata.refresh.interval.ms": NOTICE_TOPICS_WITHIN_MS,
        **given,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }


def connection_settings(given: Settings) -> dict[str, Any]:
    """Those of a client's settings that say how to reach the broker."""
    refuse_no_mapping(given)
    return {name: value for name, value in given.items() if name.startswith(CONNECTION)}


def without_report_callback(settings: dict[str, Any]) -> Callable[..., object] | None:
    """Take the delivery callback for all records out of the settings; it is called from ours."""
    callbacks = [settings.pop(name, None) for name in ("on_delivery", "dr_cb", "dr_msg_cb")]
    return next((callback for callback in callbacks if callback is not None), None)


def refuse_no_mapping(given: object) -> None:
    """Raises ConfigRefused."""
    if not isinstance(given, Mapping):
        raise ConfigRefused(
            f"the settings are a {type(given).__name__}: give a dict, for example "
            "{'bootstrap.servers': 'localhost:9092'}"
        )


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


def _refuse_other_partitioners(given: Settings) -> None:
    nested = given.get("default.topic.config")
    for settings in (given, nested if isinstance(nested, Mapping) else {}):
        chosen = settings.get(PARTITIONER, settings.get("partitioner_callback", BY_JAVA_HASH[0]))
        if chosen not in BY_JAVA_HASH:
            raise ConfigRefused(
                f"partitioner is {chosen!r}: a cancel meets its record only if both were "
                "partitioned alike, from any language, and that is Java's way "
                f"({BY_JAVA_HASH[0]}); leave partitioner out"
            )


def _durability(given: Settings) -> dict[str, Any]:
    """acks=all and idempotence, unless what was given forbids it; librdkafka would refuse both."""
    acks = _acks(given)
    in_flight = given.get("max.in.flight.requests.per.connection", given.get("max.in.flight", 0))
    retries = given.get("retries", given.get("message.send.max.retries", 1))
    all_named = {} if {"acks", "request.required.acks"} & given.keys() else {"acks": acks}
    may_be_idempotent = acks == "all" and int(in_flight) <= MOST_IN_FLIGHT and int(retries) > 0
    return {**all_named, "enable.idempotence": True} if may_be_idempotent else all_named


def need_all_acks(given: Settings, because: str) -> None:
    """Raises ConfigRefused when a record may count as stored that one broker alone has."""
    if (acks := _acks(given)) != "all":
        raise ConfigRefused(f"acks is {acks}, it must be 'all': {because}; leave acks out")


def _acks(given: Settings) -> str:
    nested = given.get("default.topic.config")
    settings = {**nested, **given} if isinstance(nested, Mapping) else given
    found = str(settings.get("acks", settings.get("request.required.acks", "all")))
    return "all" if found == "-1" else found


def _must_be(given: Settings, name: str, value: str, because: str) -> None:
    nested = given.get("default.topic.config")
    for settings in (given, nested if isinstance(nested, Mapping) else {}):
        found = str(settings.get(name, value))
        if found.lower() != value.lower():
            raise ConfigRefused(f"{name} is {found!r}, it must be {value!r}: {because}")
