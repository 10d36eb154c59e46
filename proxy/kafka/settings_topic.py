"""The settings topic, which each session reads whole and then follows.

Served partitions tell new partitions from lost offsets
(docs/exactly-once.md#8-never-silently-start-over). For audits they keep policies by first offset,
which committed metadata forget.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple, Self, TypeVar, cast

import structlog
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from proxy.config.settings import MOST_PER_SECOND, Resumed, Settings, TargetLimit
from proxy.errors import BrokerRefused, StartOverRefused
from proxy.kafka.client_settings import (
    committed_settings_reader_config,
    common_config,
    connected,
    settings_reader_config,
)
from proxy.kafka.reader import AT_ONCE_RECORDS, RangesReading, offsets_of
from proxy.kafka.topics import TopicFacts
from proxy.kafka.unreadable import SkippedRange, SkippedRanges
from proxy.protocol.body import Message as AnyMessage
from proxy.protocol.bounded_json import read_object, whole
from proxy.protocol.policy import TARGETS_PATTERN, Policy, digest_of
from proxy.protocol.position import MISSED_MOVES, MISSED_PARTITION, PolicyFrom
from proxy.protocol.proofs import HopKey

log = structlog.get_logger(__name__)


# Keys and values about partitions. A policy's key is its digest.

SERVED: Final = "served/"
PAUSED: Final = "paused/"
RESUMED: Final = "resumed/"
LIMITS: Final = "limits/"
RATE: Final = "rate/"
INGEST: Final = "ingest/"
SKIPPED: Final = "skipped/"
HOP_KEY: Final = "hop-key/"
HOP_KEYS_PARTITION: Final = 0
"""One partition orders the keys. The first one signs."""
BY_KEY: Final = -1
OVERDUE: Final = "overdue/"
"""Every rule for overdue records that ever counted, for audits."""
CLOCK: Final = "clock/"
"""An empty record for the broker's timestamp."""
MOST_POLICIES: Final = 256
"""At most 10 KB for each partition."""
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


def served_key(group_id: str, topic: str, partition: int) -> str:
    """Return the key of a served partition."""
    return f"{SERVED}{group_id}/{topic}/{partition}"


def pause_key(group_id: str, pattern: str) -> str:
    """Return the key of a pause."""
    return f"{PAUSED}{group_id}/{pattern}"


def resumed_key(group_id: str, pattern: str) -> str:
    """Return the key of the end of a pattern's last pause."""
    return f"{RESUMED}{group_id}/{pattern}"


def limit_key(group_id: str, pattern: str) -> str:
    """Return the key of a pattern's limit."""
    return f"{LIMITS}{group_id}/{pattern}"


def rate_key(group_id: str) -> str:
    """Return the key of each worker's limit."""
    return f"{RATE}{group_id}/worker"


def ingest_key(group_id: str) -> str:
    """Return the key of the pause of ingestion."""
    return f"{INGEST}{group_id}/paused"


def skipped_key(group_id: str, topic_id: str, partition: int, base: int) -> str:
    """Return the key of a skipped batch."""
    return f"{SKIPPED}{group_id}/{topic_id}/{partition}/{base}"


def skipped_value(end: int, error: str, now_ms: int) -> str:
    """Return the value of a skipped batch."""
    return json.dumps({"end": end, "error": error, "skipped_at": now_ms}, separators=(",", ":"))


def clock_key(group_id: str) -> str:
    """Return the key of the broker clock's record."""
    return f"{CLOCK}{group_id}"


def overdue_key(group_id: str, rules: str) -> str:
    """Return the key of rules for overdue records."""
    digest = hashlib.sha256(rules.encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{OVERDUE}{group_id}/{digest}"


def pattern_in(kind: str, group_id: str, key: str) -> str | None:
    """Return the pattern in a key of this kind (PAUSED, RESUMED or LIMITS)."""
    own = f"{kind}{group_id}/"
    pattern = key.removeprefix(own)
    return pattern if key.startswith(own) and TARGETS_PATTERN.fullmatch(pattern) else None


# Run-time controls for all instances. A key's newest record counts, until it is deleted.

MOST_PAUSES: Final = 1_000
MOST_LIMITS: Final = 1_000
CONTROLS: Final = (PAUSED, RESUMED, LIMITS, RATE, INGEST)

T = TypeVar("T")


class RunTimeControls:
    """The run-time controls of one group."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._paused: dict[str, bool] = {}
        self._resumed: dict[str, Resumed] = {}
        self._limits: dict[str, TargetLimit] = {}
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
        return dict(self._limits)

    def take(self, key: str, value: bytes | None) -> None:
        """Take a record of CONTROLS. A ValueError keeps the previous one in force."""
        if key == ingest_key(self._group_id):
            self.is_ingest_paused = value is not None
        elif key == rate_key(self._group_id):
            self.max_per_second = None if value is None else _rate(value)
        elif (pattern := pattern_in(PAUSED, self._group_id, key)) is not None:
            _keep(self._paused, pattern, None if value is None else True, MOST_PAUSES, "pauses")
        elif (pattern := pattern_in(RESUMED, self._group_id, key)) is not None:
            end = None if value is None else _resumed(value)
            if end and len(self._resumed) >= MOST_PAUSES and pattern not in self._resumed:
                del self._resumed[min(self._resumed, key=lambda name: self._resumed[name].at_ms)]
            _keep(self._resumed, pattern, end, MOST_PAUSES, "pauses that are over")
        elif (pattern := pattern_in(LIMITS, self._group_id, key)) is not None:
            limit = None if value is None else _limit(value)
            _keep(self._limits, pattern, limit, MOST_LIMITS, "limits")


def _keep(kept: dict[str, T], pattern: str, one: T | None, most: int, what: str) -> None:
    if one is None:
        kept.pop(pattern, None)
    elif pattern in kept or len(kept) < most:
        kept[pattern] = one
    else:
        log.error("too many: this one does not count", kind=what, pattern=pattern, most=most)


def _resumed(value: bytes) -> Resumed:
    said = read_object(value)
    at_ms, per_second = said.get("resumed_at"), said.get("per_second")
    if type(at_ms) is not int:
        raise ValueError(f"resumed_at is {at_ms!r}")
    is_rate = type(per_second) is int and 1 <= per_second <= MOST_PER_SECOND
    return Resumed(at_ms, per_second if is_rate else None)


def _rate(value: bytes) -> int:
    per_second = read_object(value).get("per_second")
    if type(per_second) is not int or not 1 <= per_second <= MOST_PER_SECOND:
        raise ValueError(f"per_second is {per_second!r}")
    return per_second


def _limit(value: bytes) -> TargetLimit:
    """Parse a limit, without fields of later versions."""
    said = read_object(value)
    return TargetLimit.model_validate(
        {name: said[name] for name in TargetLimit.model_fields if name in said}
    )


READ_TIMEOUT_S: Final = 30.0
"""The broker aborts unfinished transactions earlier."""
WRITE_TIMEOUT_S: Final = 30.0
MOST_OVERDUE_RULES: Final = 10_000
"""Audits need them forever."""
RESTORE: Final = "Restore that topic's records; do not delete or empty it while records wait."


class SettingsTopic:
    """The content of the settings topic as of the last `look`, and its writer, for one thread.
    `new_reader` reads committed records. `heartbeat` is called while waiting."""

    def __init__(
        self,
        consumer: Consumer,
        new_producer: Callable[[], Producer],
        new_reader: Callable[[], Consumer],
        topic: str,
        group_id: str,
        heartbeat: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer, self._new_producer = consumer, new_producer
        self._new_reader, self._now_s = new_reader, now_s
        self._topic, self._group_id, self._heartbeat = topic, group_id, heartbeat
        self._policies: dict[str, Policy] = {}
        self._served: dict[str, ServedPartition] = {}
        self._hop_keys: dict[str, HopKey] = {}
        self._overdue: set[str] = set()
        self._controls = RunTimeControls(group_id)
        self._skipped: dict[str, SkippedRanges] = {}
        self._note_looked_at()

    @property
    def paused(self) -> frozenset[str]:
        return self._controls.paused

    @property
    def resumed(self) -> Mapping[str, Resumed]:
        return self._controls.resumed

    @property
    def is_ingest_paused(self) -> bool:
        return self._controls.is_ingest_paused

    @property
    def max_per_second(self) -> int | None:
        return self._controls.max_per_second

    @property
    def limits(self) -> Mapping[str, TargetLimit]:
        """Run-time limits by pattern. A rule for overdue records counts once it was read back, for
        audits to know it."""
        found = self._controls.limits.items()
        counting = {pattern: self._known_to_audits(pattern, limit) for pattern, limit in found}
        return {pattern: limit for pattern, limit in counting.items() if limit is not None}

    def skipped(self, topic_id: str) -> SkippedRanges:
        return self._skipped.setdefault(topic_id, SkippedRanges())

    def load(self) -> None:
        try:
            metadata = self._consumer.list_topics(self._topic, READ_TIMEOUT_S).topics[self._topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            self._read_to_end([TopicPartition(self._topic, p) for p in metadata.partitions])
            self._note_looked_at()
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
        before = self._as_looked_at
        self._note_looked_at()
        return before != self._as_looked_at

    def close(self) -> None:
        self._consumer.close()

    def policy(self, digest: str) -> Policy:
        """Return the policy, even if just written. Raises StartOverRefused: older records need
        it."""
        what = f"The committed offsets name the settings {digest}, which the topic {self._topic}"
        return self._held(self._policies, digest, f"{what} does not hold.")

    def hop_key(self, digest: str) -> HopKey:
        """Return the key. Raises StartOverRefused: it proves the proxy's own records."""
        what = f"The settings in the topic {self._topic} name the key {digest} for hops, which it"
        return self._held(self._hop_keys, digest, f"{what} does not hold.")

    def _held(self, held: Mapping[str, T], digest: str, lost: str) -> T:
        if digest not in held:
            self.catch_up()
        if digest not in held:
            raise StartOverRefused(lost, RESTORE)
        return held[digest]

    def ensure(self, policy: Policy) -> str:
        """Write a missing policy, before an offset refers to it."""
        digest = policy.digest
        if digest not in self._policies:
            self._write({digest: policy.to_json()})
            self._policies[digest] = policy
        return digest

    def ensure_overdue_rules(self, rules: str) -> None:
        """Write missing rules (JSON), before a record ends by them."""
        key = overdue_key(self._group_id, rules)
        if key not in self._overdue:
            self._write({key: rules})
            self._overdue.add(key)

    def signing_key(self) -> HopKey:
        """Return the key that signs hops. A new one is read again, because another instance's key
        may come first."""
        if not self._hop_keys:
            key = HopKey.new()
            self._write({HOP_KEY + key.digest: key.secret.hex()}, HOP_KEYS_PARTITION)
            self.catch_up()
        return next(iter(self._hop_keys.values()))

    def served_topic_id(self, topic: str, partition: int) -> str | None:
        """Return the id of the topic that this group has served here before."""
        served = self._served.get(served_key(self._group_id, topic, partition))
        return None if served is None else served.topic_id

    def read_missed(
        self, take: Callable[[str, bytes | None], None], is_all: Callable[[], bool]
    ) -> None:
        """Hand records about missed moves to `take`, also from open transactions. Raises
        StartOverRefused unless `is_all` is True at the end, and KafkaException."""
        place = self._topic, MISSED_PARTITION
        with closing(self._new_reader()) as reader:
            there = {place: offsets_of(self._consumer, *place)}
            reading = RangesReading(reader, there, self._now_s, silent_at_most_s=READ_TIMEOUT_S)
            while reading.left:
                self._heartbeat()
                for _topic, message in reading.poll():
                    if (key := _key(message)).startswith(MISSED_MOVES):
                        _understood(key, lambda: take(key, message.value()))  # noqa: B023
        if not is_all():
            raise StartOverRefused(
                f"The committed offsets name moves that came too late, of which the topic "
                f"{self._topic} does not hold all.",
                RESTORE,
            )

    def record_served(
        self, topic: TopicFacts, policies: Mapping[int, Sequence[PolicyFrom]]
    ) -> None:
        changed: dict[str, ServedPartition] = {}
        for partition, committed in policies.items():
            key = served_key(self._group_id, topic.name, partition)
            known = self._served.get(key, ServedPartition(topic.topic_id))
            served = known.joined(topic.topic_id, committed)
            if self._served.get(key) != served:
                changed[key] = served
        if changed:
            self._write({key: served.to_json() for key, served in changed.items()})
            self._served |= changed

    def _read_to_end(self, places: Sequence[TopicPartition]) -> None:
        """Read from these offsets, or from the start if the topic is shorter.

        A new leader's fetch may report an end before an acknowledged record. It answers requests
        for the end only when it knows it (KIP-207).
        """
        spans: dict[tuple[str, int], range] = {}
        for place in places:
            there = offsets_of(self._consumer, self._topic, place.partition)
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

    def _note_looked_at(self) -> None:
        limits = self.limits, self.max_per_second
        self._has_taken = False
        self._as_looked_at = self.paused, self.resumed, limits, self.is_ingest_paused

    def _take(self, message: AnyMessage) -> None:
        self._has_taken = True
        key, value = _key(message), message.value()
        _understood(key, lambda: self._take_record(key, value, message.partition()))

    def _take_record(self, key: str, value: bytes | None, partition: int) -> None:
        """Take a record. Raises ValueError, KeyError or TypeError."""
        if key.startswith(CONTROLS):
            self._controls.take(key, value)
        elif key.startswith(HOP_KEY):
            hop_key = HopKey(bytes.fromhex((value or b"").decode()))
            if partition == HOP_KEYS_PARTITION and key == HOP_KEY + hop_key.digest:
                self._hop_keys.setdefault(hop_key.digest, hop_key)
        elif key.startswith(OVERDUE):
            self._take_overdue_rules(key)
        elif key.startswith(SKIPPED):
            self._take_skipped(key, value)
        elif key.startswith((CLOCK, MISSED_MOVES)):
            return
        elif key.startswith(SERVED):
            self._served[key] = ServedPartition.from_json(value or b"")
        else:
            policy = Policy.from_json(value or b"")
            if digest_of(value or b"") == key:
                self._policies[key] = policy

    def _take_skipped(self, key: str, value: bytes | None) -> None:
        """Take a skipped range. It counts forever, so its deletion is ignored."""
        own = f"{SKIPPED}{self._group_id}/"
        if not key.startswith(own) or value is None:
            return
        topic_id, partition, first = key.removeprefix(own).split("/")
        base, end = int(first), whole(read_object(value)["end"])
        if end <= base:
            raise ValueError(f"the end {end} does not lie behind {base}")
        self.skipped(topic_id).add(int(partition), SkippedRange(base, end))

    def _take_overdue_rules(self, key: str) -> None:
        if not key.startswith(f"{OVERDUE}{self._group_id}/") or key in self._overdue:
            return
        if len(self._overdue) < MOST_OVERDUE_RULES:
            self._overdue.add(key)
        else:
            log.error(
                "too many rules for the overdue have been set: this one does not count", key=key
            )

    def _known_to_audits(self, pattern: str, limit: TargetLimit) -> TargetLimit | None:
        rules = limit.rules_json(pattern)
        if rules is None or overdue_key(self._group_id, rules) in self._overdue:
            return limit
        if limit.per_second is None:
            return None
        return TargetLimit(per_second=limit.per_second)

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
                f"The topic {self._topic} does not take a record: {failed[0].str()}.",
                "The proxy must be able to write there before it reads any record.",
            )


def open_settings_topic(settings: Settings, heartbeat: Callable[[], None]) -> SettingsTopic:
    """Return the loaded settings topic."""
    producer = {**common_config(settings), "enable.idempotence": True}
    topic = SettingsTopic(
        Consumer(settings_reader_config(settings)),
        lambda: connected(Producer(producer), settings.topics.settings),
        lambda: Consumer(committed_settings_reader_config(settings)),
        settings.topics.settings,
        settings.group_id,
        heartbeat,
    )
    topic.load()
    return topic


def _understood(key: str, take: Callable[[], None]) -> None:
    try:
        take()
    except (ValueError, KeyError, TypeError) as problem:
        log.warning("record of the settings topic not understood", key=key, why=str(problem))


def _key(message: AnyMessage | Message) -> str:
    return (message.key() or b"").decode("utf-8", "replace")
