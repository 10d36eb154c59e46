"""Opt-in readers of other schedulers' headers (docs/aliases.md).

The proxy's own headers win. The unit of a time follows from its header's name. A translation
depends only on the record and the chosen aliases.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeAlias

from proxy.protocol import headers as names
from proxy.protocol.body import Headers
from proxy.protocol.header_values import Rejected
from proxy.protocol.headers import shown
from proxy.protocol.outcomes import Rejection
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic
from proxy.protocol.times import LATEST_MS, parse_instant_ms

TIMES: Final = frozenset({names.DELIVER_AT, names.DELAY, names.LEVEL})
SETTLES_TIME: Final = TIMES | {names.RETRY_GROUP}
SETTLES_TARGET: Final = frozenset({names.TOPIC, names.RETRY_GROUP, names.TRANSACTION})

MILLISECONDS: Final = 1
SECONDS: Final = 1_000
LONG_DIGITS: Final = 19
LARGEST_PARTITION: Final = 2**31 - 1
THE_KEY: Final = "the record's key"

Ask: TypeAlias = dict[str, tuple[bytes | None, str]]
"""Request header of the proxy -> (value, name of the source header)."""
Request: TypeAlias = tuple[Headers, bytes | None, bytes | None]


class ForeignRecord(NamedTuple):
    """One ingress record. `headers` holds the last value of each name."""

    headers: dict[str, bytes | None]
    key: bytes | None
    value: bytes | None

    @property
    def has_own_request(self) -> bool:
        """Return whether the record has a request header of the proxy. Stamps are no requests."""
        return any(name[:6] == names.PREFIX and name not in names.STAMPS for name in self.headers)

    @property
    def needs_time(self) -> bool:
        return SETTLES_TIME.isdisjoint(self.headers)

    def target(self, name: str) -> Ask:
        """Read the target topic. Raises Rejected if it is missing."""
        if not SETTLES_TARGET.isdisjoint(self.headers):
            return {}
        raw = self.headers.get(name)
        if raw is None:
            raise Rejected("target-missing", f"the record has neither {name} nor {names.TOPIC}")
        if not is_legal_topic(raw.decode("utf-8", "replace")):
            raise Rejected("target-illegal", f"{name} is {shown(raw)}: {TOPIC_NAME_RULE}")
        return {names.TOPIC: (raw, name)}

    def due_at(self, name: str, unit_ms: int = MILLISECONDS, *, signed: bool = False) -> Ask:
        """Read a point in time, in units of `unit_ms` since 1970."""
        return self._time(names.DELIVER_AT, name, unit_ms, signed=signed)

    def due_after(self, name: str, unit_ms: int = MILLISECONDS, *, signed: bool = False) -> Ask:
        return self._time(names.DELAY, name, unit_ms, signed=signed)

    def target_key(self, name: str) -> Ask:
        """Read the target key. Without the header the key is null."""
        return {} if names.KEY in self.headers else {names.KEY: (self.headers.get(name), name)}

    def target_partition(self, name: str) -> Ask:
        if names.PARTITION in self.headers or name not in self.headers:
            return {}
        number = self.whole(name, "partition-bad")
        if number > LARGEST_PARTITION:
            why = f"{name} is {number}: no topic has that many partitions"
            raise Rejected("partition-bad", why)
        return {names.PARTITION: (digits(number), name)}

    def identity(self) -> Ask:
        return {} if names.ID in self.headers else {names.ID: (self._key_as_id(), THE_KEY)}

    def cancel(self) -> Ask:
        return {names.CANCEL: (self._key_as_id(), THE_KEY)}

    def whole(self, name: str, code: str, *, signed: bool = False) -> int:
        """Read a whole number. If `signed`, it may begin with a sign."""
        raw = self.headers.get(name)
        text = b"" if raw is None else raw
        bare = text[1:] if signed and text[:1] in {b"+", b"-"} else text
        if len(bare) <= LONG_DIGITS and bare.isdigit():
            return int(text)
        found = "missing" if name not in self.headers else shown(raw)
        raise Rejected(code, f"{name} is {found}: it must be a whole number in digits")

    def _time(self, own: str, name: str, unit_ms: int, *, signed: bool) -> Ask:
        """Read a time. RocketMQ's clients may write a sign. A negative time becomes 0."""
        if not self.needs_time:
            return {}
        number = max(0, self.whole(name, "time-unreadable", signed=signed))
        if number * unit_ms > LATEST_MS:
            unit = "seconds" if unit_ms == SECONDS else "milliseconds"
            why = f"{name} is {number} and counts {unit}: that is more than 30,000 years"
            raise Rejected("time-unreadable", why)
        return {own: (digits(number * unit_ms), name)}

    def _key_as_id(self) -> bytes:
        if self.key is None or not self.key.strip():
            raise Rejected(
                "header-unreadable",
                f"{THE_KEY} is {shown(self.key)}: a header alias reads the key as the record's id, "
                "so the record must have a key",
            )
        return self.key


def digits(number: int) -> bytes:
    """Return a number as the text of a header."""
    return b"%d" % number


class Alias(NamedTuple):
    """The headers of one scheduler. If several aliases read a record, their requests must agree."""

    triggers: frozenset[str]
    """A record with one of these headers is read by this alias."""
    headers: frozenset[str]
    readers: tuple[Callable[[ForeignRecord], Ask], ...]


# cesium-kafka: a delay or an instant. The target topic is in the settings of a cesium process.
# Source: mjucius/cesium-kafka/docs/header-protocol.md, protocol version 1 (sections 1.1 to 1.7).

CESIUM: Final = frozenset({"cesium-delay-ms", "cesium-deliver-at"})


def _cesium(record: ForeignRecord) -> Ask:
    """The instant wins over the delay (section 1.4)."""
    if "cesium-deliver-at" in record.headers:
        return record.due_at("cesium-deliver-at")
    return record.due_after("cesium-delay-ms")


# etf1/kafka-message-scheduler: epoch SECONDS, target topic and key. The record's key is the id.
# Source: README.md and schedule/kafka/schedule.go. Blank ids are invalid (schedule/helper.go).
# Without a target key the key is null (runner/kafka/handler.go). Deletions carry no headers
# (clientlib/clientlib.go).

ETF1: Final = frozenset({"scheduler-epoch", "scheduler-target-topic", "scheduler-target-key"})


def _etf1(record: ForeignRecord) -> Ask:
    if _is_etf1_deletion(record):
        return record.cancel()
    return (
        record.target("scheduler-target-topic")
        | record.due_at("scheduler-epoch", SECONDS)
        | record.target_key("scheduler-target-key")
        | record.identity()
    )


def _is_etf1_deletion(record: ForeignRecord) -> bool:
    """A null value cancels unless the record has a request header of the proxy."""
    return record.value is None and not record.has_own_request


# Karafka Pro Scheduled Messages: epoch SECONDS, a target and a record type.
# Source: karafka/wiki, Pro/Scheduled-Messages.md. The type `tombstone` cancels like `cancel`
# (karafka/karafka, lib/karafka/pro/scheduled_messages/daily_buffer.rb).

KARAFKA_VERSION: Final = "schedule_schema_version"
KARAFKA_TYPE: Final = "schedule_source_type"
KARAFKA_EPOCH: Final = "schedule_target_epoch"
KARAFKA_TOPIC: Final = "schedule_target_topic"
KARAFKA_KEY: Final = "schedule_target_key"
KARAFKA_PARTITION: Final = "schedule_target_partition"
KARAFKA_PARTITION_KEY: Final = "schedule_target_partition_key"
KARAFKA: Final = frozenset(
    {
        KARAFKA_VERSION,
        KARAFKA_TYPE,
        KARAFKA_EPOCH,
        KARAFKA_TOPIC,
        KARAFKA_KEY,
        KARAFKA_PARTITION,
        KARAFKA_PARTITION_KEY,
    }
)


def _karafka(record: ForeignRecord) -> Ask:
    version = record.headers.get(KARAFKA_VERSION, b"1.0.0")
    if version != b"1.0.0":
        why = f"{KARAFKA_VERSION} is {shown(version)}: the proxy reads only 1.0.0"
        raise Rejected("header-unsupported", why)
    kind = record.headers.get(KARAFKA_TYPE)
    if kind in {b"cancel", b"tombstone"}:
        return record.cancel()
    if kind != b"schedule":
        found = shown(kind) if KARAFKA_TYPE in record.headers else "missing"
        why = f"{KARAFKA_TYPE} is {found}: it must be schedule, cancel or tombstone"
        raise Rejected("header-unreadable", why)
    _check_partition_key(record)
    return (
        record.target(KARAFKA_TOPIC)
        | record.due_at(KARAFKA_EPOCH, SECONDS)
        | record.target_key(KARAFKA_KEY)
        | record.target_partition(KARAFKA_PARTITION)
        | record.identity()
    )


def _check_partition_key(record: ForeignRecord) -> None:
    """Ruby's client hashes the partition key. The proxy hashes the target key as Java does."""
    headers = record.headers
    if KARAFKA_PARTITION_KEY not in headers or names.PARTITION in headers:
        return
    if headers[KARAFKA_PARTITION_KEY] != headers.get(KARAFKA_KEY):
        raise Rejected(
            "header-unsupported",
            f"{KARAFKA_PARTITION_KEY} is another key than {KARAFKA_KEY}: the proxy can only choose "
            f"a partition by the target key, by {KARAFKA_PARTITION} or by {names.PARTITION}",
        )


# Apache RocketMQ: message properties as Kafka headers of the same names. Source: MessageConst.java.
# The precedence in `_rocketmq_time` is from HookUtils.java, which ignores levels up to 0. Deletes
# are from TimerMessageStore.java. `__STARTDELIVERTIME` is from Tencent Cloud TDMQ for RocketMQ,
# "Scheduled and delayed messages", 4.x.

START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
ROCKETMQ_DELETE: Final = "TIMER_DEL_UNIQKEY"
UNIQUE_KEY: Final = "UNIQ_KEY"
ROCKETMQ: Final = frozenset(
    {
        "DELAY",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        START_DELIVER_TIME,
        ROCKETMQ_DELETE,
    }
)


def _rocketmq(record: ForeignRecord) -> Ask:
    """A delete cancels by the id, so it needs no time."""
    if ROCKETMQ_DELETE in record.headers:
        return _rocketmq_cancel(record)
    unique_key = record.headers.get(UNIQUE_KEY)
    has_id = names.ID in record.headers or not unique_key
    return _rocketmq_time(record) | ({} if has_id else {names.ID: (unique_key, UNIQUE_KEY)})


def _rocketmq_cloud(record: ForeignRecord) -> Ask:
    """Read the time property of cloud services. No source says whether this time wins over other
    times, so all times must agree."""
    if START_DELIVER_TIME not in record.headers or ROCKETMQ_DELETE in record.headers:
        return {}
    return record.due_at(START_DELIVER_TIME, signed=True)


def _rocketmq_time(record: ForeignRecord) -> Ask:
    if not record.needs_time:
        return {}
    if "DELAY" in record.headers:
        level = record.whole("DELAY", "level-unknown", signed=True)
        if level > 0:
            return {names.LEVEL: (digits(level), "DELAY")}
    if "TIMER_DELAY_SEC" in record.headers:
        return record.due_after("TIMER_DELAY_SEC", SECONDS, signed=True)
    if "TIMER_DELAY_MS" in record.headers:
        return record.due_after("TIMER_DELAY_MS", signed=True)
    if "TIMER_DELIVER_MS" in record.headers:
        return record.due_at("TIMER_DELIVER_MS", signed=True)
    return {}


def _rocketmq_cancel(record: ForeignRecord) -> Ask:
    """Read a delete: the UNIQ_KEY, in newer versions after the topic and `+`. RocketMQ's clients
    write a UNIQ_KEY in hexadecimal digits, so this key has no `+`."""
    named = record.headers[ROCKETMQ_DELETE]
    unique_key = (named or b"").rpartition(b"+")[2]
    if not unique_key:
        why = f"{ROCKETMQ_DELETE} is {shown(named)}: it must name the {UNIQUE_KEY}"
        raise Rejected("header-unreadable", why)
    return {names.CANCEL: (unique_key, ROCKETMQ_DELETE)}


# RabbitMQ's delayed message exchange: one header, a delay in milliseconds.
# Source: rabbitmq-delayed-message-exchange, README.md and
# src/rabbit_exchange_type_delayed_message.erl. Delivered messages carry the negated delay
# (src/rabbit_delayed_message_utils.erl).

RABBITMQ: Final = frozenset({"x-delay"})


def _rabbitmq(record: ForeignRecord) -> Ask:
    """A negative delay marks a record that was delayed already."""
    if record.needs_time and record.whole("x-delay", "time-unreadable", signed=True) <= 0:
        return {}
    return record.due_after("x-delay", signed=True)


# NATS JetStream's message scheduler: single scheduled messages.
# Source: nats-io/nats-architecture-and-design, adr/ADR-51.md, revision 6.

NATS_SCHEDULE: Final = "Nats-Schedule"
NATS_TARGET: Final = "Nats-Schedule-Target"
NATS_NEXT: Final = "Nats-Schedule-Next"
NATS_UNSERVED: Final = {
    "Nats-Schedule-Source": "the proxy delivers this record, not the newest message of a subject",
    "Nats-Schedule-Time-Zone": "it belongs to recurring schedules, which are not served",
}
NATS: Final = frozenset({NATS_SCHEDULE, NATS_TARGET, NATS_NEXT})
LONGEST_INSTANT_BYTES: Final = 64


def _nats(record: ForeignRecord) -> Ask:
    if record.headers.get(NATS_NEXT) == b"purge":
        raise Rejected(
            "header-unsupported",
            f"{NATS_NEXT}: purge is not served, because the proxy knows no subjects: "
            "give records a timer-id and cancel them with timer-cancel",
        )
    if NATS_SCHEDULE not in record.headers and NATS_TARGET not in record.headers:
        return {}
    for name, why in NATS_UNSERVED.items():
        if name in record.headers:
            raise Rejected("header-unsupported", f"{name} is not served: {why}")
    return _nats_time(record) | record.target(NATS_TARGET)


def _nats_time(record: ForeignRecord) -> Ask:
    if not record.needs_time:
        return {}
    raw = record.headers.get(NATS_SCHEDULE)
    if not raw:
        found = shown(raw) if NATS_SCHEDULE in record.headers else "missing"
        why = f"{NATS_SCHEDULE} is {found}: write @at and an RFC 3339 time"
        raise Rejected("time-unreadable", why)
    if not raw.startswith(b"@at "):
        raise Rejected(
            "header-unsupported",
            f"{NATS_SCHEDULE} is {shown(raw)}: recurring schedules (cron, @every, @daily, ...) are "
            "not served; for a single time write @at and an RFC 3339 time",
        )
    return {names.DELIVER_AT: (digits(_nats_instant_ms(raw[4:])), NATS_SCHEDULE)}


def _nats_instant_ms(raw: bytes) -> int:
    if raw.isdigit():
        raise Rejected("time-unreadable", f"{NATS_SCHEDULE} is @at {shown(raw)}: write RFC 3339")
    text = raw[:LONGEST_INSTANT_BYTES].decode("utf-8", "backslashreplace")
    try:
        return max(0, parse_instant_ms(text))
    except ValueError as error:
        raise Rejected("time-unreadable", f"{NATS_SCHEDULE}: {error}") from None


# Spring for Apache Kafka, non-blocking retries. Numbers are big-endian. The due has the bytes of
# BigInteger.toByteArray. Attempts have four bytes, formerly one.
# Source: DeadLetterPublishingRecovererFactory.java, RetryTopicHeaders.java.

SPRING_TIME: Final = "retry_topic-backoff-timestamp"
SPRING_ATTEMPTS: Final = "retry_topic-attempts"
SPRING: Final = frozenset({SPRING_TIME, SPRING_ATTEMPTS})
LONG_BYTES: Final = 8
FIRST_RETRY: Final = 2
"""Spring writes the number of the next delivery: 2 after the first failure."""


def _spring(record: ForeignRecord) -> Ask:
    return _spring_time(record) | _spring_attempt(record)


def _spring_time(record: ForeignRecord) -> Ask:
    if not record.needs_time or SPRING_TIME not in record.headers:
        return {}
    raw = record.headers[SPRING_TIME] or b""
    due_ms = int.from_bytes(raw[: LONG_BYTES + 1], "big", signed=True)
    if not 1 <= len(raw) <= LONG_BYTES or due_ms > LATEST_MS:
        raise Rejected(
            "time-unreadable",
            f"{SPRING_TIME} is {_in_hex(raw)}: it must be epoch milliseconds as Spring "
            "writes them, 1 to 8 bytes, the highest first",
        )
    return {names.DELIVER_AT: (digits(max(0, due_ms)), SPRING_TIME)}


def _spring_attempt(record: ForeignRecord) -> Ask:
    headers = record.headers
    is_retry = names.RETRY_GROUP in headers and names.ATTEMPT not in headers
    if not is_retry or SPRING_ATTEMPTS not in headers:
        return {}
    raw = headers[SPRING_ATTEMPTS] or b""
    if len(raw) not in {1, 4} or (len(raw) == 4 and raw[0] > 127):
        raise Rejected(
            "header-unreadable",
            f"{SPRING_ATTEMPTS} is {_in_hex(raw)}: it must be a number of four bytes (older "
            "versions of Spring: one), the highest first",
        )
    failures_before = max(0, int.from_bytes(raw, "big") - FIRST_RETRY)
    return {names.ATTEMPT: (digits(failures_before), SPRING_ATTEMPTS)}


def _in_hex(raw: bytes) -> str:
    return f"0x{raw[:16].hex()}{'...' if len(raw) > 16 else ''}" if raw else "empty"


ALIASES: Final = {
    "cesium": Alias(CESIUM, CESIUM, (_cesium,)),
    "etf1": Alias(ETF1, ETF1, (_etf1,)),
    "karafka": Alias(KARAFKA, KARAFKA, (_karafka,)),
    "rocketmq": Alias(ROCKETMQ, ROCKETMQ | {UNIQUE_KEY}, (_rocketmq, _rocketmq_cloud)),
    "rabbitmq": Alias(RABBITMQ, RABBITMQ, (_rabbitmq,)),
    "nats": Alias(NATS, NATS | NATS_UNSERVED.keys(), (_nats,)),
    "spring": Alias(SPRING, SPRING, (_spring,)),
}
KNOWN_ALIASES: Final = tuple(ALIASES)

CONTRADICTION_CODES: Final = {
    "time": "time-unreadable",
    names.TOPIC: "target-illegal",
    names.PARTITION: "partition-bad",
}


class Translator:
    """Reader for chosen aliases. It changes no hops, and no records that cancel or recall by the
    proxy's own headers. Raises ValueError for an unknown name."""

    __slots__ = ("_aliases", "_decisive", "_deletions", "_triggers")

    def __init__(self, chosen: tuple[str, ...], *, has_recalls: bool = True) -> None:
        for name in chosen:
            if name not in ALIASES:
                near = get_close_matches(name, KNOWN_ALIASES, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(ALIASES)}"
                raise ValueError(f"{name!r} is no header alias: {hint}")
        self._aliases = [alias for name, alias in ALIASES.items() if name in chosen]
        recalls = {names.RECALL} if has_recalls else set()
        self._decisive = frozenset({names.CANCEL, names.HOP_FROM, *recalls})
        self._triggers = frozenset[str]().union(*(alias.triggers for alias in self._aliases))
        self._deletions = "etf1" in chosen

    def translate(
        self, headers: Headers, key: bytes | None, value: bytes | None
    ) -> Request | Rejection:
        """Return the record with request headers of the proxy appended. Never raises.

        Without a foreign request, `headers` is the same object.
        """
        asked = dict(headers)
        if self._triggers.isdisjoint(asked) and not (value is None and self._deletions):
            return headers, key, value
        if not self._decisive.isdisjoint(asked):
            return headers, key, value
        try:
            ask = _one_request(self._asks(ForeignRecord(asked, key, value)))
        except Rejected as rejected:
            return rejected.rejection
        if ask:
            headers = [*headers, *((name, answer) for name, (answer, _) in ask.items())]
        return headers, key, value

    def _asks(self, record: ForeignRecord) -> list[Ask]:
        if self._triggers.isdisjoint(record.headers):
            return [record.cancel()] if _is_etf1_deletion(record) else []
        return [
            reader(record)
            for alias in self._aliases
            if not alias.triggers.isdisjoint(record.headers)
            for reader in alias.readers
        ]


def _one_request(asks: list[Ask]) -> Ask:
    """Merge the readers' answers. Raises Rejected if two contradict each other."""
    if len(asks) == 1:
        return asks[0]
    found: dict[str, tuple[str, bytes | None, str]] = {}
    for ask in asks:
        for name, (value, source) in ask.items():
            about = "time" if name in TIMES else name
            before = found.setdefault(about, (name, value, source))
            if before[:2] != (name, value):
                raise _contradiction(about, before, (name, value, source))
    if names.CANCEL in found and len(found) > 1:
        other = next(one for about, one in found.items() if about != names.CANCEL)
        raise _contradiction(names.CANCEL, found[names.CANCEL], other)
    return {name: (value, source) for name, value, source in found.values()}


def _contradiction(
    about: str, one: tuple[str, bytes | None, str], other: tuple[str, bytes | None, str]
) -> Rejected:
    asked = " and ".join(
        f"{source} asks for {name}: {shown(value)}" for name, value, source in (one, other)
    )
    return Rejected(
        CONTRADICTION_CODES.get(about, "header-unreadable"),
        f"two header aliases contradict each other: {asked}; leave one out, or set the proxy's own "
        "header, which decides",
    )
