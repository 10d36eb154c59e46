"""The settings topic: policies, hop keys and operators' controls. Each session reads it whole.

Its records about served partitions show whether a partition is new or has lost its committed offset
(docs/exactly-once.md#8-never-silently-start-over). For audits these records also list policies by
first offset, because the committed metadata forget old policies.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Final, NamedTuple, Self, TypeGuard, TypeVar, cast

import structlog
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from proxy.config.settings import MOST_PER_SECOND, Resumed, Settings, TargetLimit
from proxy.errors import BrokerRefused, StartOverRefused
from proxy.kafka.client_settings import (
    committed_settings_reader_config,
    common_config,
    connected,
    settings_reader_config,
)
from proxy.kafka.log_ranges import log_ranges
from proxy.kafka.reader import AT_ONCE_RECORDS, RangesReading, offsets_of
from proxy.kafka.topics import TopicFacts
from proxy.kafka.unreadable import SkippedRanges
from proxy.protocol.body import Message as AnyMessage
from proxy.protocol.bounded_json import read_object, whole
from proxy.protocol.policy import TARGETS_PATTERN, Policy, digest_of
from proxy.protocol.position import MISSED_MOVES_PREFIX, MISSED_PARTITION, PolicyFrom
from proxy.protocol.proofs import HopKey

log = structlog.get_logger(__name__)


# Prefixes of keys. A policy has its digest as key, without a prefix.

SERVED: Final = "served/"
PAUSED: Final = "paused/"
RESUMED: Final = "resumed/"
LIMITS: Final = "limits/"
RATE: Final = "rate/"
INGEST: Final = "ingest/"
SKIPPED: Final = "skipped/"
HOP_KEY: Final = "hop-key/"
HOP_KEYS_PARTITION: Final = 0
"""All hop keys are in one partition, so that they have an order. The first key signs."""
BY_KEY: Final = -1
OVERDUE: Final = "overdue/"
"""Every rule for overdue records that was ever in force, for audits."""
CLOCK: Final = "clock/"
"""An empty record, written to learn the broker's time."""
IMPORTED: Final = "imported/"
"""How far an import has come. Only imports use these records."""
MOST_POLICIES: Final = 256
"""Number of policies kept for each partition, in at most 10 KB."""
DIGEST_LENGTH: Final = 16


class ServedPartition(NamedTuple):
    """A served partition, and its policies by first offset."""

    topic_id: str
    policies: tuple[PolicyFrom, ...] = ()

    def joined(self, topic_id: str, policies: Sequence[PolicyFrom]) -> Self:
        known = self.policies if topic_id == self.topic_id else ()
        older = [one for one in known if one.first_offset < policies[0].first_offset]
        return type(self)(topic_id, (*older, *policies)[-MOST_POLICIES:])

    def to_json(self) -> str:
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse a record. Raises ValueError, KeyError, TypeError."""
        found = read_object(text)
        topic_id = str(found["topic_id"])
        policies = found.get("policies", ())
        return cls(topic_id, tuple(PolicyFrom(whole(n), str(digest)) for n, digest in policies))


def settings_key(kind: str, group_id: str, *rest: object) -> str:
    """Return the key of a group's record of this kind."""
    return kind + "/".join(map(str, (group_id, *rest)))


def skipped_value(end: int, error: str, now_ms: int) -> str:
    """Return the value of the record that marks a batch as skipped."""
    return json.dumps({"end": end, "error": error, "skipped_at": now_ms}, separators=(",", ":"))


def overdue_key(group_id: str, rules: str) -> str:
    """Return the key of rules for overdue records."""
    return settings_key(
        OVERDUE, group_id, hashlib.sha256(rules.encode()).hexdigest()[:DIGEST_LENGTH]
    )


def pattern_in(kind: str, group_id: str, key: str) -> str | None:
    """Return the pattern in a key of this kind (PAUSED, RESUMED or LIMITS)."""
    own = settings_key(kind, group_id, "")
    pattern = key.removeprefix(own)
    return pattern if key.startswith(own) and TARGETS_PATTERN.fullmatch(pattern) else None


# Controls that operators set at run time, for all instances. The newest record of a key applies.

MOST_PAUSES: Final = 1_000
MOST_LIMITS: Final = 1_000
MOST_OVERDUE_RULES: Final = 10_000
"""At most this many rules are kept. Audits need them, so none is ever deleted."""
CONTROLS: Final = (PAUSED, RESUMED, LIMITS, RATE, INGEST, OVERDUE)

T = TypeVar("T")


class RunTimeControls:
    """The run-time controls of one group."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._paused: dict[str, bool] = {}
        self._resumed: dict[str, Resumed] = {}
        self._limits: dict[str, TargetLimit] = {}
        self.overdue: dict[str, bool] = {}
        """Keys of rules for overdue records."""
        self.is_ingest_paused = False
        self.max_per_second: int | None = None

    @property
    def paused(self) -> frozenset[str]:
        return frozenset(self._paused)

    @property
    def resumed(self) -> Mapping[str, Resumed]:
        ended = self._resumed.items()
        return {pattern: end for pattern, end in ended if pattern not in self._paused}

    @property
    def limits(self) -> Mapping[str, TargetLimit]:
        """Limits by pattern. A rule for overdue records applies only after the topic has it,
        because audits must find each applied rule there."""
        found: dict[str, TargetLimit] = {}
        for pattern, limit in self._limits.items():
            rules = limit.rules_json(pattern)
            if rules is None or overdue_key(self._group_id, rules) in self.overdue:
                found[pattern] = limit
            elif limit.per_second is not None:
                found[pattern] = TargetLimit(per_second=limit.per_second)
        return found

    def in_force(self) -> tuple[object, ...]:
        """Return the values of all controls. They differ after a change."""
        limits = self.limits, self.max_per_second
        return self.paused, self.resumed, limits, self.is_ingest_paused

    def take(self, key: str, value: bytes | None) -> None:
        """Take a record of CONTROLS. After a ValueError the previous record stays in force."""
        group_id = self._group_id
        if key == settings_key(INGEST, group_id, "paused"):
            self.is_ingest_paused = value is not None
        elif key == settings_key(RATE, group_id, "worker"):
            self.max_per_second = None if value is None else _rate(value)
        elif key.startswith(settings_key(OVERDUE, group_id, "")):
            _keep(self.overdue, key, True, MOST_OVERDUE_RULES, "overdue rules")
        elif (pattern := pattern_in(PAUSED, group_id, key)) is not None:
            _keep(self._paused, pattern, None if value is None else True, MOST_PAUSES, "pauses")
        elif (pattern := pattern_in(RESUMED, group_id, key)) is not None:
            end = None if value is None else _resumed(value)
            if end and len(self._resumed) >= MOST_PAUSES and pattern not in self._resumed:
                del self._resumed[min(self._resumed, key=lambda name: self._resumed[name].at_ms)]
            _keep(self._resumed, pattern, end, MOST_PAUSES, "pauses that are over")
        elif (pattern := pattern_in(LIMITS, group_id, key)) is not None:
            limit = None if value is None else _limit(value)
            _keep(self._limits, pattern, limit, MOST_LIMITS, "limits")


def _keep(kept: dict[str, T], name: str, one: T | None, most: int, what: str) -> None:
    if one is None:
        kept.pop(name, None)
    elif name in kept or len(kept) < most:
        kept[name] = one
    else:
        log.error("too many: this one is ignored", kind=what, name=name, most=most)


def _resumed(value: bytes) -> Resumed:
    said = read_object(value)
    at_ms, per_second = said.get("resumed_at"), said.get("per_second")
    if type(at_ms) is not int:
        raise ValueError(f"resumed_at is {at_ms!r}")
    return Resumed(at_ms, per_second if _is_rate(per_second) else None)


def _rate(value: bytes) -> int:
    per_second = read_object(value).get("per_second")
    if not _is_rate(per_second):
        raise ValueError(f"per_second is {per_second!r}")
    return per_second


def _is_rate(per_second: object) -> TypeGuard[int]:
    return type(per_second) is int and 1 <= per_second <= MOST_PER_SECOND


def _limit(value: bytes) -> TargetLimit:
    """Parse a limit. Ignore fields of later versions."""
    said = read_object(value)
    return TargetLimit.model_validate(
        {name: said[name] for name in TargetLimit.model_fields if name in said}
    )


READ_TIMEOUT_S: Final = 30.0
"""By default the broker aborts open transactions earlier (transaction.timeout.ms: 10 s)."""
WRITE_TIMEOUT_S: Final = 30.0
RESTORE: Final = (
    "Restore that topic's records. Do not delete or empty the topic while records are pending."
)


class SettingsTopic:
    """The content of the settings topic at the last `look`, and a writer to the topic. For one
    thread. `new_reader` makes a consumer of committed records. `heartbeat` is called while waiting.
    `range_of` returns a partition's offsets. By default it asks the consumer, which answers only
    after its open fetch, up to half a second later."""

    def __init__(
        self,
        consumer: Consumer,
        new_producer: Callable[[], Producer],
        new_reader: Callable[[], Consumer],
        topic: str,
        group_id: str,
        heartbeat: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
        range_of: Callable[[int], range] | None = None,
    ) -> None:
        self._consumer, self._new_producer = consumer, new_producer
        self._new_reader, self._now_s = new_reader, now_s
        self._range_of = range_of or partial(offsets_of, consumer, topic)
        self._topic, self._group_id, self._heartbeat = topic, group_id, heartbeat
        self._policies: dict[str, Policy] = {}
        self._served: dict[str, ServedPartition] = {}
        self._hop_keys: dict[str, HopKey] = {}
        self.controls = RunTimeControls(group_id)
        self._skipped: dict[str, SkippedRanges] = {}
        self._has_taken, self._in_force = False, self.controls.in_force()

    def skipped(self, topic_id: str) -> SkippedRanges:
        return self._skipped.setdefault(topic_id, SkippedRanges())

    def load(self) -> None:
        try:
            metadata = self._consumer.list_topics(self._topic, READ_TIMEOUT_S).topics[self._topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            self._read_to_end([TopicPartition(self._topic, p) for p in metadata.partitions])
            self._has_taken, self._in_force = False, self.controls.in_force()
        except BaseException:
            self.close()
            raise

    def catch_up(self) -> None:
        self._read_to_end(self._consumer.position(self._consumer.assignment()))

    def look(self) -> bool:
        """Take new records without waiting. Return whether a run-time control has changed since the
        last look."""
        for message in self._consumer.consume(AT_ONCE_RECORDS, 0):
            error = message.error()
            if error is None:
                self._take(cast(AnyMessage, message))
            elif error.code() != KafkaError._PARTITION_EOF:
                log.warning("settings topic not readable for now", error=error.str())
        if not self._has_taken:
            return False
        before, self._in_force = self._in_force, self.controls.in_force()
        self._has_taken = False
        return before != self._in_force

    def close(self) -> None:
        self._consumer.close()

    def policy(self, digest: str) -> Policy:
        """Return the policy with this digest. Raises StartOverRefused if the topic has lost the
        policy, because pending records need the policy."""
        return self._known(self._policies, digest, "The committed offsets name the settings")

    def hop_key(self, digest: str) -> HopKey:
        """Return the key with this digest. Raises StartOverRefused if the topic has lost it,
        because the key proves which records the proxy wrote."""
        return self._known(self._hop_keys, digest, "The committed settings name the key for hops")

    def _known(self, known: Mapping[str, T], digest: str, needed: str) -> T:
        if digest not in known:
            self.catch_up()
        if digest not in known:
            lost = f"{needed} {digest}, which the topic {self._topic} does not hold."
            raise StartOverRefused(lost, RESTORE)
        return known[digest]

    def ensure(self, policy: Policy) -> str:
        """Write the policy if the topic lacks it. Return its digest. Call this before a committed
        offset names the policy."""
        digest = policy.digest
        if digest not in self._policies:
            self._write({digest: policy.to_json()})
            self._policies[digest] = policy
        return digest

    def ensure_overdue_rules(self, rules: str) -> None:
        """Write the rules (JSON) if the topic lacks them. Call this before a rule ends a record."""
        key = overdue_key(self._group_id, rules)
        if key not in self.controls.overdue:
            self._write({key: rules})
            self.controls.overdue[key] = True

    def signing_key(self) -> HopKey:
        """Return the key that signs hops. A new key is read back, because another instance's key
        may come first."""
        if not self._hop_keys:
            key = HopKey.new()
            self._write({HOP_KEY + key.digest: key.secret.hex()}, HOP_KEYS_PARTITION)
            self.catch_up()
        return next(iter(self._hop_keys.values()))

    def served_topic_id(self, topic: str, partition: int) -> str | None:
        """Return the id that the topic had when this group last served the partition. None: not yet
        served."""
        served = self._served.get(settings_key(SERVED, self._group_id, topic, partition))
        return None if served is None else served.topic_id

    def read_missed(
        self, take: Callable[[str, bytes | None], None], is_all: Callable[[], bool]
    ) -> None:
        """Give the records about missed moves to `take`. Wait for open transactions, which may
        hold such records. Raises KafkaException, and StartOverRefused if `is_all` returns False at
        the end."""
        place = self._topic, MISSED_PARTITION
        with closing(self._new_reader()) as reader:
            there = {place: offsets_of(self._consumer, *place)}
            reading = RangesReading(reader, there, self._now_s, silent_at_most_s=READ_TIMEOUT_S)
            while reading.left:
                self._heartbeat()
                for _topic, message in reading.poll():
                    if (key := _key(message)).startswith(MISSED_MOVES_PREFIX):
                        _take_or_warn(key, lambda: take(key, message.value()))  # noqa: B023
        if not is_all():
            raise StartOverRefused(
                "The committed offsets refer to moves that ended as `missed`. The topic "
                f"{self._topic} does not hold all of them.",
                RESTORE,
            )

    def record_served(
        self, topic: TopicFacts, policies: Mapping[int, Sequence[PolicyFrom]]
    ) -> None:
        changed: dict[str, ServedPartition] = {}
        for partition, committed in policies.items():
            key = settings_key(SERVED, self._group_id, topic.name, partition)
            known = self._served.get(key, ServedPartition(topic.topic_id))
            served = known.joined(topic.topic_id, committed)
            if self._served.get(key) != served:
                changed[key] = served
        if changed:
            self._write({key: served.to_json() for key, served in changed.items()})
            self._served |= changed

    def _read_to_end(self, places: Sequence[TopicPartition]) -> None:
        """Read from these offsets, or from the start if the topic is shorter.

        The ends are requested first, because a new leader answers this request only once it knows
        the end (KIP-207). In the answer to a fetch the end may lie before an acknowledged record.
        """
        spans: dict[tuple[str, int], range] = {}
        for place in places:
            there = self._range_of(place.partition)
            is_there = there.start <= place.offset <= there.stop
            start = place.offset if is_there else there.start
            spans[self._topic, place.partition] = range(start, there.stop)
        if self._consumer.assignment() and not any(spans.values()):
            return
        reading = RangesReading(self._consumer, spans, self._now_s, follows=True)
        while reading.left:
            self._heartbeat()
            for _topic, message in reading.poll():
                self._take(message)

    def _take(self, message: AnyMessage) -> None:
        self._has_taken = True
        key, value = _key(message), message.value()
        _take_or_warn(key, lambda: self._take_record(key, value, message.partition()))

    def _take_record(self, key: str, value: bytes | None, partition: int) -> None:
        """Take a record. Raises ValueError, KeyError or TypeError."""
        if key.startswith(CONTROLS):
            self.controls.take(key, value)
        elif key.startswith(HOP_KEY):
            hop_key = HopKey(bytes.fromhex((value or b"").decode()))
            if partition == HOP_KEYS_PARTITION and key == HOP_KEY + hop_key.digest:
                self._hop_keys.setdefault(hop_key.digest, hop_key)
        elif key.startswith(SKIPPED):
            self._take_skipped(key, value)
        elif key.startswith((CLOCK, IMPORTED, MISSED_MOVES_PREFIX)):
            return
        elif key.startswith(SERVED):
            self._served[key] = ServedPartition.from_json(value or b"")
        else:
            policy = Policy.from_json(value or b"")
            if digest_of(value or b"") == key:
                self._policies[key] = policy

    def _take_skipped(self, key: str, value: bytes | None) -> None:
        """Take a skipped range. A range stays skipped forever, so a deletion is ignored."""
        own = settings_key(SKIPPED, self._group_id, "")
        if not key.startswith(own) or value is None:
            return
        topic_id, partition, first = key.removeprefix(own).split("/")
        base, end = int(first), whole(read_object(value)["end"])
        if end <= base:
            raise ValueError(f"the end {end} is not beyond {base}")
        self.skipped(topic_id).add(int(partition), range(base, end))

    def _write(self, records: Mapping[str, str], partition: int = BY_KEY) -> None:
        producer = self._new_producer()
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        for key, value in records.items():
            producer.produce(self._topic, value, key, partition, on_delivery=on_delivery)
        if producer.flush(WRITE_TIMEOUT_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
        if failed:
            raise BrokerRefused(
                f"The topic {self._topic} rejected a record: {failed[0].str()}.",
                "The proxy must be able to write there before it reads records.",
            )


class UnchangedSettingsTopic(SettingsTopic):
    """The settings topic of a reader that serves no partition, and writes nothing."""

    def record_served(
        self, topic: TopicFacts, policies: Mapping[int, Sequence[PolicyFrom]]
    ) -> None:
        """Write nothing."""


def open_settings_topic(
    settings: Settings,
    heartbeat: Callable[[], None],
    admin: AdminClient,
    kind: type[SettingsTopic] = SettingsTopic,
) -> SettingsTopic:
    """Return the loaded settings topic."""
    producer, name = common_config(settings), settings.topics.settings
    producer["enable.idempotence"] = True
    topic = kind(
        Consumer(settings_reader_config(settings)),
        lambda: connected(Producer(producer), name),
        lambda: Consumer(committed_settings_reader_config(settings)),
        name,
        settings.group_id,
        heartbeat,
        range_of=lambda partition: range(*log_ranges(admin, name, [partition])[partition]),
    )
    topic.load()
    return topic


def _take_or_warn(key: str, take: Callable[[], None]) -> None:
    try:
        take()
    except (ValueError, KeyError, TypeError) as problem:
        log.warning("record of the settings topic not understood", key=key, why=str(problem))


def _key(message: AnyMessage | Message) -> str:
    return (message.key() or b"").decode("utf-8", "replace")
