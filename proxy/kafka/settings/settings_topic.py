"""The settings topic: policies by digest, partitions ever served, keys of hops, rules for the
overdue, what operators change at run time, missed moves, skipped batches.

Written once per change of settings, per partition and per change at run time; read whole by each
session as it begins, by the one consumer that then follows those changes. The partitions served
tell a new one from one whose committed offset was lost
(docs/exactly-once.md#8-never-silently-start-over). They also keep which policy held from which
offset on, for an audit: the committed metadata forgets that as the floor passes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from proxy.config.settings import Settings
from proxy.config.target_limit import Resumed, TargetLimit
from proxy.errors import BrokerRefused, StartOverRefused
from proxy.kafka.client_settings import (
    committed_settings_reader_config,
    common_config,
    connected,
    settings_reader_config,
)
from proxy.kafka.ingress.unreadable import SkippedRange, SkippedRanges
from proxy.kafka.settings.run_time_controls import CONTROLS, RunTimeControls
from proxy.kafka.settings.settings_records import (
    BY_KEY,
    CLOCK,
    HOP_KEY,
    HOP_KEYS_PARTITION,
    OVERDUE,
    SERVED,
    SKIPPED,
    ServedPartition,
    overdue_key,
    served_key,
    skipped_end,
    skipped_place,
)
from proxy.kafka.topics import TopicFacts
from proxy.protocol.policy import Policy, digest_of
from proxy.protocol.position import MISSED_MOVES, MISSED_PARTITION, PolicyFrom
from proxy.protocol.proofs import HopKey

READ_TIMEOUT_S: Final = 30.0
WRITE_TIMEOUT_S: Final = 30.0
AT_ONCE: Final = 500
MOST_OVERDUE_RULES: Final = 10_000
"""They are kept for audits for ever; so many different ones nobody thinks of."""

log = structlog.get_logger(__name__)


class SettingsTopic:
    """What the settings topic holds, and the way to add to it. All calls come from one thread.

    All of it follows the topic with every `look`. `new_producer` is called for each write,
    `new_reader` for each reading of what transactions have written. `heartbeat` is called while the
    broker is waited for.
    """

    def __init__(
        self,
        consumer: Consumer,
        new_producer: Callable[[], Producer],
        new_reader: Callable[[], Consumer],
        topic: str,
        group_id: str,
        heartbeat: Callable[[], None],
    ) -> None:
        self._consumer, self._new_producer = consumer, new_producer
        self._new_reader = new_reader
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
        """Patterns of the targets that are paused, as of the last look."""
        return self._controls.paused

    @property
    def resumed(self) -> Mapping[str, Resumed]:
        """Pattern -> the end of its last pause, as of the last look."""
        return self._controls.resumed

    @property
    def is_ingest_paused(self) -> bool:
        """Whether nothing more is to be taken in."""
        return self._controls.is_ingest_paused

    @property
    def max_per_second(self) -> int | None:
        """The bound on each worker that was set at run time."""
        return self._controls.max_per_second

    @property
    def limits(self) -> Mapping[str, TargetLimit]:
        """By pattern, what was set at run time. A rule for the overdue does not count before it was
        read among the rules kept for audits, so no record ends by one that an audit cannot know."""
        found = self._controls.limits.items()
        counting = {pattern: self._known_to_audits(pattern, limit) for pattern, limit in found}
        return {pattern: limit for pattern, limit in counting.items() if limit is not None}

    def skipped(self, topic_id: str) -> SkippedRanges:
        """What operators have skipped of the ingress topic with this id: it is kept up to date."""
        return self._skipped.setdefault(topic_id, SkippedRanges())

    def load(self) -> None:
        """Read all there is: by it older records are read, and paused targets held back.

        Raises KafkaException.
        """
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
        """Read on to the end, as it is now. Raises KafkaException."""
        self._read_to_end(self._consumer.position(self._consumer.assignment()))

    def look(self) -> bool:
        """Take what has arrived, without waiting. Say whether anything that is set at run time has
        changed since the last look. What `catch_up` has read meanwhile counts, too."""
        for message in self._consumer.consume(AT_ONCE, 0):
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                log.warning("settings topic not readable for now", error=error.str())
        if not self._has_taken:
            return False
        before = self._as_looked_at
        self._note_looked_at()
        return before != self._as_looked_at

    def close(self) -> None:
        """Follow it no more."""
        self._consumer.close()

    def policy(self, digest: str) -> Policy:
        """Raises StartOverRefused: without it older records cannot be read as they were.

        Another instance may have written it since this one has read the topic.
        """
        if digest not in self._policies:
            self.catch_up()
        if digest not in self._policies:
            raise StartOverRefused(
                f"The committed offsets name the settings {digest}, which the topic {self._topic} "
                "does not hold.",
                "Restore that topic's records; do not delete or empty it while records wait.",
            )
        return self._policies[digest]

    def ensure(self, policy: Policy) -> str:
        """Make sure that the topic holds the policy before any offset refers to it."""
        digest = policy.digest
        if digest not in self._policies:
            self._write({digest: policy.to_json()})
            self._policies[digest] = policy
        return digest

    def ensure_overdue_rules(self, rules: str) -> None:
        """Make sure that the topic holds these rules (JSON) before any record ends by them."""
        key = overdue_key(self._group_id, rules)
        if key not in self._overdue:
            self._write({key: rules})
            self._overdue.add(key)

    def hop_key(self, digest: str) -> HopKey:
        """Raises StartOverRefused: without it the proxy does not know what it wrote itself."""
        if digest not in self._hop_keys:
            self.catch_up()
        if digest not in self._hop_keys:
            raise StartOverRefused(
                f"The settings in the topic {self._topic} name the key {digest} for hops, which it "
                "does not hold.",
                "Restore that topic's records; do not delete or empty it while records wait.",
            )
        return self._hop_keys[digest]

    def signing_key(self) -> HopKey:
        """The key by which hops are signed: made by whoever first finds none.

        Of those who do at once, the first one's counts: it is asked for once more.
        """
        if not self._hop_keys:
            key = HopKey.new()
            self._write({HOP_KEY + key.digest: key.secret.hex()}, HOP_KEYS_PARTITION)
            self.catch_up()
        return next(iter(self._hop_keys.values()))

    def served_topic_id(self, topic: str, partition: int) -> str | None:
        """Id of the topic whose offsets this group has committed here before; None if never."""
        served = self._served.get(served_key(self._group_id, topic, partition))
        return None if served is None else served.topic_id

    def read_missed(
        self, take: Callable[[str, bytes | None], None], is_all: Callable[[], bool]
    ) -> None:
        """Hand the records about missed moves to `take`, until that `is_all` that there ever was.

        Waits for the end of a transaction that may hold the last of them. Raises StartOverRefused
        where there are none left to come, and KafkaException.
        """
        consumer, place = self._new_reader(), TopicPartition(self._topic, MISSED_PARTITION)
        try:
            place.offset = OFFSET_BEGINNING
            consumer.assign([place])
            self._read_missed(consumer, take, is_all)
        finally:
            consumer.close()

    def _read_missed(
        self,
        consumer: Consumer,
        take: Callable[[str, bytes | None], None],
        is_all: Callable[[], bool],
    ) -> None:
        is_at_end = False
        while not (is_at_end and is_all()):
            self._heartbeat()
            message = consumer.poll(READ_TIMEOUT_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
            error = message.error()
            if error is None:
                is_at_end = False
                _take_missed(_key(message), message.value(), take)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif not is_all() and self._is_end(message):
                raise StartOverRefused(
                    f"The committed offsets name moves that came too late, of which the topic "
                    f"{self._topic} does not hold all.",
                    "Restore that topic's records; do not delete or empty it while records wait.",
                )
            else:
                is_at_end = True

    def _is_end(self, end: Message) -> bool:
        """Whether no transaction is open beyond what was read: a consumer of committed records
        would not tell."""
        return (end.offset() or 0) >= self._end_of(TopicPartition(self._topic, MISSED_PARTITION))

    def record_served(
        self, topic: TopicFacts, policies: Mapping[int, Sequence[PolicyFrom]]
    ) -> None:
        """Remember that these partitions have committed offsets, and the policies there."""
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
        """From these offsets, or the beginning where there is none, or the topic is shorter now.

        The ends are asked for: a new leader may report one in a fetch that lies before what its
        predecessor has acknowledged, but answers no request for it until it knows (KIP-207). The
        fetch that finds nothing more waits for its whole time: only where the last offset is no
        record has it to be waited for.
        """
        ends = [(place, self._end_of(place)) for place in places]
        for place, end in ends:
            if not 0 <= place.offset <= end:
                place.offset = OFFSET_BEGINNING
        unread = {place.partition: end for place, end in ends if max(place.offset, 0) < end}
        if unread or not self._consumer.assignment():
            self._consumer.assign(list(places))
        while unread:
            self._heartbeat()
            message = self._consumer.poll(READ_TIMEOUT_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            read_to = (message.offset() or 0) + (error is None)
            if read_to >= unread.get(message.partition() or 0, 0):
                unread.pop(message.partition() or 0, None)

    def _end_of(self, place: TopicPartition) -> int:
        """Where the partition ends, open transactions included."""
        asked = TopicPartition(self._topic, place.partition)
        _start, end = self._consumer.get_watermark_offsets(asked, READ_TIMEOUT_S)
        return int(end)

    def _note_looked_at(self) -> None:
        self._has_taken, self._as_looked_at = False, self._changeable

    def _take(self, message: Message) -> None:
        self._has_taken = True
        key, value = _key(message), message.value()
        try:
            if key.startswith(CONTROLS):
                self._controls.take(key, value)
            elif key.startswith(HOP_KEY):
                self._take_hop_key(key, value or b"", message.partition())
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
        except (ValueError, KeyError, TypeError) as problem:
            log.warning("record of the settings topic not understood", key=key, why=str(problem))

    def _take_skipped(self, key: str, value: bytes | None) -> None:
        """It counts for ever: its deletion is passed over."""
        place = skipped_place(self._group_id, key)
        if place is not None and value is not None:
            topic_id, partition, base = place
            skipped = SkippedRange(base, skipped_end(value, base))
            self.skipped(topic_id).add(partition, skipped)

    def _take_overdue_rules(self, key: str) -> None:
        if not key.startswith(f"{OVERDUE}{self._group_id}/") or key in self._overdue:
            return
        if len(self._overdue) < MOST_OVERDUE_RULES:
            self._overdue.add(key)
        else:
            log.error(
                "too many rules for the overdue have been set: this one does not count", key=key
            )

    def _take_hop_key(self, key: str, value: bytes, partition: int | None) -> None:
        hop_key = HopKey(bytes.fromhex(value.decode()))
        if partition == HOP_KEYS_PARTITION and key == HOP_KEY + hop_key.digest:
            self._hop_keys.setdefault(hop_key.digest, hop_key)

    @property
    def _changeable(self) -> tuple[object, ...]:
        limits = self.limits, self.max_per_second
        return self.paused, self.resumed, limits, self.is_ingest_paused

    def _known_to_audits(self, pattern: str, limit: TargetLimit) -> TargetLimit | None:
        rules = limit.rules_json(pattern)
        if rules is None or overdue_key(self._group_id, rules) in self._overdue:
            return limit
        if limit.per_second is None:
            return None
        return TargetLimit(per_second=limit.per_second)

    def _write(self, records: Mapping[str, str], partition: int = BY_KEY) -> None:
        """All of them, values by key, or an error."""
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
    """The settings topic of the settings, loaded."""
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


def _take_missed(key: str, value: bytes | None, take: Callable[[str, bytes | None], None]) -> None:
    if key.startswith(MISSED_MOVES):
        try:
            take(key, value)
        except (ValueError, KeyError, TypeError) as problem:
            log.warning("record of the settings topic not understood", key=key, why=str(problem))


def _key(message: Message) -> str:
    return (message.key() or b"").decode("utf-8", "replace")
