"""Kafka in memory, for tests with exact control of time and faults. Records of a transaction become
visible with its offsets at the commit. Consumer, producer and admin client (`stand_in_admin`) have
confluent_kafka's interface."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    ThrottleEvent,
    TopicPartition,
)

from proxy.dispatch.known_targets import record_batch_bytes
from proxy.dispatch.partitioning import partition_of
from proxy.kafka.ingress import NOT_IN_THE_LOG

INGRESS = "timer.ingress"
COMPRESSIBLE = b"compressible"
"""Prefix of values that compress to a tenth of their size."""
ABSENT = object()
"""Default that marks a missing argument, for an argument with two names."""


@dataclass(slots=True)
class Record:
    """Record of a topic with the interface of confluent_kafka.Message. `is_missing` means that
    compaction removed the record. Group consumers still see it, but `StandInReader` does not.
    `timestamp_ms` is the broker's time, and `stamp_ms` is the producer's. Consumers do not see
    `is_aborted` records, among them transaction markers."""

    topic_: str
    partition_: int
    offset_: int
    key_: bytes | None
    value_: bytes | None
    headers_: list[tuple[str, bytes | None]]
    timestamp_ms: int
    error_: KafkaError | None = None
    is_missing: bool = False
    stamp_ms: int | None = None
    is_aborted: bool = False

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.headers_ or None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, self.timestamp_ms

    def error(self) -> KafkaError | None:
        return self.error_

    def header(self, name: str) -> bytes | None:
        return dict(self.headers_).get(name)


def kafka_error(code: int, text: str = "made by the test", **kind: bool) -> KafkaException:
    """Return an error as librdkafka raises it. `kind` is fatal, retriable or txn_requires_abort."""
    return KafkaException(KafkaError(code, text, **kind))


@dataclass(slots=True)
class StandInKafka:
    """Topics, committed offsets, and planted faults.

    Transactions: the next commits raise `commit_faults`, one each. A fault is raised before the
    commit, or after it if `after_commit` wraps the fault. `meanwhile` runs just before the next
    commit, `before_offsets` before its offsets are sent. `generation` is the generation of the
    group. A transaction with offsets of an older generation is refused. `uncommitted` maps
    partitions to the producer whose open transaction commits their offsets.

    Limits: `max_bytes` limits values by topic. `max_record_bytes` limits records by topic, which
    `tells_rules` reports as max.message.bytes. `max_sent_bytes` is the producers' own
    message.max.bytes, at which `produce` raises. `time_limits` are the allowed ms before and
    after the broker's time by topic. `keyless_refused` topics refuse records without a key, like
    compacted topics. `unauthorised` topics refuse writes and descriptions.

    Partitions: the metadata says that partitions in `leaderless` and `short_of_replicas` cannot
    be written. But these partitions take records. `is_partitioning` lets keys choose partitions.
    Otherwise all records go to the first partition.

    Ingress: `first_partition` gives several stand-ins different partitions. `stable_ends` has the
    offset of each partition at which an open transaction begins. Consumers read up to this offset.
    The records of this transaction are `undecided`. `unreadable` has batches (base, end) by
    partition that no consumer can unpack.

    Group: `rebalances` ("on_revoke" or "on_lost" with a partition) happen at the next polls.
    With several members, `wanted` maps partitions to future owners, and `held` maps them to
    current owners. `places` has the static members. A member that unsubscribes leaves.

    Throttling: a producer that sends more than `takes_at_once` records in a transaction is
    throttled for `throttles_ms`. `sizes` has the number of records at each flush."""

    partitions: int = 2
    first_partition: int = field(default=0, kw_only=True)
    is_partitioning: bool = field(default=False, kw_only=True)
    now_ms: Callable[[], int] = lambda: 0
    logs: dict[tuple[str, int], list[Record]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[int, tuple[int, str]] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    log_starts: dict[int, int] = field(default_factory=dict)
    stable_ends: dict[int, int] = field(default_factory=dict)
    undecided: dict[int, list[Record]] = field(default_factory=lambda: defaultdict(list))
    unreadable: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    max_bytes: dict[str, int] = field(default_factory=dict)
    max_record_bytes: dict[str, int] = field(default_factory=dict)
    max_sent_bytes: int = 1 << 30
    time_limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    keyless_refused: set[str] = field(default_factory=set)
    unauthorised: set[str] = field(default_factory=set)
    tells_rules: bool = False
    leaderless: set[tuple[str, int]] = field(default_factory=set)
    short_of_replicas: set[tuple[str, int]] = field(default_factory=set)
    commit_faults: list[tuple[str, Exception]] = field(default_factory=list)
    rebalances: list[tuple[str, int]] = field(default_factory=list)
    generation: int = 1
    aborts: int = 0
    wanted: dict[int, int] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    places: set[int] = field(default_factory=set)
    uncommitted: dict[int, StandInProducer] = field(default_factory=dict)
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    before_offsets: list[Callable[[], object]] = field(default_factory=list)
    takes_at_once: int | None = None
    throttles_ms: int = 5_000
    sizes: list[int] = field(default_factory=list)

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> Record:
        log = self.logs[topic, partition]
        record = Record(topic, partition, len(log), key, value, headers or [], self.now_ms())
        log.append(record)
        return record

    def read(self, topic: str) -> list[Record]:
        logs = [log for (name, _), log in sorted(self.logs.items()) if name == topic]
        return [record for log in logs for record in log if not record.is_aborted]

    def open_transaction(self, partition: int, *written: Callable[[], Record]) -> None:
        """Write records in an open transaction of the ingress. More may follow."""
        self.stable_ends.setdefault(partition, self.end(partition))
        self.undecided[partition] += [write() for write in written]

    def end_transaction(self, partition: int, *, is_committed: bool) -> None:
        if self.stable_ends.pop(partition, None) is None:
            return
        for record in self.undecided.pop(partition, []):
            record.is_aborted = not is_committed
        self.append(INGRESS, partition).is_aborted = True

    def refusal(
        self, topic: str, key: bytes | None, value: bytes | None, size_bytes: int, stamp_ms: int
    ) -> KafkaException | None:
        """Return the broker's refusal of a record, None if it is accepted. After a refused time,
        the transaction fails with this error, but the delivery report says that the record is
        invalid."""
        if topic in self.unauthorised:
            return kafka_error(KafkaError.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True)
        most_bytes = self.max_record_bytes.get(topic, 1 << 30)
        if (value or b"").startswith(COMPRESSIBLE):
            size_bytes //= 10
        is_large = len(value or b"") > self.max_bytes.get(topic, 1 << 30)
        if is_large or size_bytes > most_bytes:
            return kafka_error(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True)
        before_ms, after_ms = self.time_limits.get(topic, (1 << 62, 1 << 62))
        if not -before_ms <= stamp_ms - self.now_ms() <= after_ms:
            return kafka_error(KafkaError.INVALID_TIMESTAMP, txn_requires_abort=True)
        if key is None and topic in self.keyless_refused:
            why = f"ProduceRequest for {topic} [0] with 1 message(s) failed"
            return kafka_error(KafkaError.INVALID_RECORD, why, txn_requires_abort=True)
        return None

    def leave(self, member: int) -> None:
        if self.wanted:
            for partition in [p for p, one in self.held.items() if one == member]:
                del self.held[partition]
            self.generation += 1

    def end(self, partition: int) -> int:
        return len(self.logs[INGRESS, partition])

    def unreadable_base(self, partition: int, first: int, stop: int) -> int | None:
        batches = self.unreadable.get(partition, ())
        return min((base for base, end in batches if base < stop and first < end), default=None)

    def stable_end(self, partition: int) -> int:
        """Return the end for read_committed consumers."""
        return min(self.end(partition), self.stable_ends.get(partition, self.end(partition)))


class StandInProducer:
    """Transactional producer. Like librdkafka's, it takes no further record after a refusal."""

    def __init__(
        self, kafka: StandInKafka, throttle_cb: Callable[[ThrottleEvent], object] = lambda _: None
    ) -> None:
        self._kafka, self._throttle_cb = kafka, throttle_cb
        self._open = self._is_fenced = False
        self._sent: list[tuple[Any, ...]] = []
        self._offsets: list[TopicPartition] = []
        self._failed: KafkaException | None = None
        self._partitions: dict[str, int] = {}
        """Partition counts at the time of the first write. Only `list_topics` renews them."""

    @property
    def is_open(self) -> bool:
        return self._open

    def init_transactions(self, timeout: float) -> None:
        self._forget()

    def fence(self) -> None:
        self._forget()
        self._is_fenced = True

    def begin_transaction(self) -> None:
        self._refuse_if_fenced()
        assert not self._open, "a transaction is open already"
        self._open = True

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: Any = ABSENT,
        on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
        timestamp: int = 0,
        headers: list[tuple[str, Any]] | None = None,
    ) -> None:
        assert self._open, "produced outside a transaction"
        if self._failed is not None:
            raise kafka_error(KafkaError._STATE)
        encoded = [(n, v.encode() if isinstance(v, str) else v) for n, v in headers or []]
        size_bytes = record_batch_bytes(key, value, encoded)
        if topic in self._kafka.topics:
            count = self._partitions.setdefault(topic, self._kafka.topics[topic])
            if partition >= count:
                raise kafka_error(KafkaError._UNKNOWN_PARTITION)
        if size_bytes > self._kafka.max_sent_bytes:
            raise kafka_error(KafkaError.MSG_SIZE_TOO_LARGE)
        refusal = self._kafka.refusal(topic, key, value, size_bytes, timestamp)
        if refusal is not None:
            self._failed = refusal
            code = refusal.args[0].code()
            told = KafkaError.INVALID_RECORD if code == KafkaError.INVALID_TIMESTAMP else code
            report = on_delivery if callback is ABSENT else callback
            if report:
                report(KafkaError(told), None)
            return
        place = self._place(topic, partition, key)
        self._sent.append((topic, place, key, value, encoded, timestamp))

    def _place(self, topic: str, partition: int, key: bytes | None) -> int:
        count = self._kafka.topics.get(topic)
        if partition < 0 and key is not None and count and self._kafka.is_partitioning:
            return partition_of(key, count)
        return max(partition, 0)

    def list_topics(self, topic: str, timeout: float) -> None:
        self._partitions.pop(topic, None)

    def flush(self, timeout: float) -> int:
        self._kafka.sizes.append(len(self._sent))
        most = self._kafka.takes_at_once
        if most is None or len(self._sent) <= most:
            return 0
        self._throttle_cb(ThrottleEvent("broker", 1, self._kafka.throttles_ms / 1_000))
        return len(self._sent) - most

    def poll(self, timeout: float) -> int:
        return 0

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], group_metadata: object, timeout: float
    ) -> None:
        if self._failed is not None:
            raise self._failed
        while self._kafka.before_offsets:
            self._kafka.before_offsets.pop(0)()
        self._refuse_if_fenced()
        if group_metadata != self._kafka.generation:
            raise kafka_error(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True)
        self._offsets = offsets
        self._kafka.uncommitted |= {place.partition: self for place in offsets}

    def commit_transaction(self, timeout: float) -> None:
        while self._kafka.meanwhile:
            self._kafka.meanwhile.pop(0)()
        if self._failed is not None:
            raise self._failed
        self._refuse_if_fenced()
        when, fault = self._kafka.commit_faults.pop(0) if self._kafka.commit_faults else ("", None)
        if when != "before":
            for *sent, stamp_ms in self._sent:
                self._kafka.append(*sent).stamp_ms = stamp_ms
            for place in self._offsets:
                self._kafka.committed[place.partition] = (place.offset, place.metadata or "")
            self._forget()
        if fault is not None:
            raise fault

    def abort_transaction(self, timeout: float) -> None:
        """Abort the transaction. As in librdkafka, the first call after a refusal purges too
        early and times out."""
        if self._failed is not None:
            self._failed = None
            raise kafka_error(KafkaError._TIMED_OUT, "1 message(s) remaining", retriable=True)
        self._kafka.aborts += 1
        self._forget()

    def purge(self, blocking: bool) -> None:
        self._forget()

    def _refuse_if_fenced(self) -> None:
        if self._is_fenced:
            raise kafka_error(KafkaError._FENCED, fatal=True)

    def _forget(self) -> None:
        others = self._kafka.uncommitted.items()
        self._kafka.uncommitted = {p: producer for p, producer in others if producer is not self}
        self._open, self._sent, self._offsets, self._failed = False, [], [], None


class StandInConsumer:
    """Consumer of the group. The only member is assigned every partition at its first poll. One of
    several members gets its partitions when no other member has them."""

    def __init__(self, kafka: StandInKafka, batch_records: int = 1_000, member: int = 0) -> None:
        self._kafka, self._member = kafka, member
        self._generation = -1
        self._batch_records = batch_records
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._callbacks: dict[str, Callable[..., None]] = {}
        self._rest: list[Record] | None = None
        self._is_leaving = False

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self._callbacks = callbacks
        self._kafka.places.add(self._member)

    def unsubscribe(self) -> None:
        """Leave at the next poll, as the client library does."""
        self._is_leaving = True

    def memberid(self) -> str:
        return "member" if self._member in self._kafka.places else ""

    def poll(self, timeout: float) -> Record | None:
        if self._is_leaving:
            self.close()
            self._positions.clear()
            self._kafka.places.discard(self._member)
            return None
        if self._kafka.wanted:
            self._follow_group()
        elif not self._positions:
            first = self._kafka.first_partition
            numbers = range(first, first + self._kafka.partitions)
            everything = [TopicPartition(INGRESS, p) for p in numbers]
            self._callbacks["on_assign"](self, everything)
        elif self._kafka.rebalances:
            self._rebalance(*self._kafka.rebalances.pop(0))
        self._rest = self._next_batch()
        return self._rest.pop(0) if self._rest else None

    def consume(self, limit: int, timeout: float) -> list[Record]:
        if self._rest is None:
            first = self.poll(timeout)
            begun = [] if first is None else [first]
            return begun + self.consume(limit, timeout)
        rest, self._rest = self._rest, None
        return rest

    def _follow_group(self) -> None:
        held, wanted, mine = self._kafka.held, self._kafka.wanted, self._member
        owned = list(self._positions)
        lost = [p for p in owned if held.get(p) != mine]
        self._tell("on_lost", lost)
        revoked = [p for p in owned if p not in lost and wanted[p] != mine]
        self._tell("on_revoke", revoked)
        for partition in revoked:
            if held.get(partition) == mine:
                del held[partition]
        evicted = [p for p in owned if p not in lost + revoked and held.get(p) != mine]
        self._tell("on_lost", evicted)  # the group removed the member during the callback
        self._kafka.generation += bool(revoked)
        is_new, self._generation = self._generation < 0, self._kafka.generation
        assigned = [p for p, member in wanted.items() if member == mine and p not in held]
        held |= dict.fromkeys(assigned, mine)
        self._tell("on_assign", assigned, even_none=is_new)

    def _tell(self, callback: str, partitions: list[int], *, even_none: bool = False) -> None:
        if partitions or even_none:
            self._callbacks[callback](self, [TopicPartition(INGRESS, p) for p in partitions])

    def _rebalance(self, callback: str, partition: int) -> None:
        self._callbacks[callback](self, [TopicPartition(INGRESS, partition)])
        self._kafka.generation += 1
        self._callbacks["on_assign"](self, [TopicPartition(INGRESS, partition)])

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self._positions.update({p.partition: p.offset for p in places})

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._positions.pop(place.partition, None)

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return committed offsets. Open transactions with offsets are aborted first."""
        for place in places:
            if (open_one := self._kafka.uncommitted.get(place.partition)) is not None:
                open_one.fence()
        known = self._kafka.committed
        return [
            TopicPartition(p.topic, p.partition, *known.get(p.partition, (-1001,))) for p in places
        ]

    def get_watermark_offsets(
        self, place: TopicPartition, timeout: float = 0, cached: bool = False
    ) -> tuple[int, int]:
        start = self._kafka.log_starts.get(place.partition, 0)
        return start, self._kafka.stable_end(place.partition)

    def pause(self, places: list[TopicPartition]) -> None:
        self._paused.update(p.partition for p in places)

    def resume(self, places: list[TopicPartition]) -> None:
        self._paused.difference_update(p.partition for p in places)

    def seek(self, place: TopicPartition) -> None:
        if place.partition not in self._positions:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self._positions[place.partition] = place.offset

    def consumer_group_metadata(self) -> object:
        return self._generation if self._kafka.wanted else self._kafka.generation

    def close(self) -> None:
        self._callbacks["on_revoke"](self, [TopicPartition(INGRESS, p) for p in self._positions])
        self._kafka.leave(self._member)

    def _next_batch(self) -> list[Record]:
        batch: list[Record] = []
        for partition, position in self._positions.items():
            if partition in self._paused:
                continue
            log = self._kafka.logs[INGRESS, partition]
            if position < self._kafka.log_starts.get(partition, 0):
                gone = KafkaError(NOT_IN_THE_LOG, "made")
                return [Record(INGRESS, partition, position, None, None, [], -1, gone)]
            stable_end = self._kafka.stable_end(partition)
            stop = min(position + self._batch_records, stable_end)
            bad = self._kafka.unreadable_base(partition, position, stop)
            taken = log[position : stop if bad is None else max(bad, position)]
            batch += [record for record in taken if not record.is_aborted]
            self._positions[partition] = reached = position + len(taken)
            if bad is not None:
                error = KafkaError(KafkaError._BAD_COMPRESSION, "made")
                batch.append(Record(INGRESS, partition, bad, None, None, [], -1, error))
            elif reached == stable_end:
                end = KafkaError(KafkaError._PARTITION_EOF, "end")
                batch.append(Record(INGRESS, partition, reached, None, None, [], -1, end))
        return batch


class StandInReader:
    """Consumer without a group, assigned one partition at an offset again and again. After the next
    assignment that is not the first one, `stale` records come before all others, like a late fetch.
    `assigned` has the offsets of all consumers that share the list."""

    def __init__(self, kafka: StandInKafka, assigned: list[int] | None = None) -> None:
        self._kafka = kafka
        self.assigned = [] if assigned is None else assigned
        self.stale: list[Record] = []
        self._late: list[Record] = []
        self._place = TopicPartition(INGRESS, -1, 0)
        self._is_first, self._is_at_end = True, False

    def assign(self, places: list[TopicPartition]) -> None:
        (self._place,) = places
        self.assigned.append(self._place.offset)
        if not self._is_first:
            self._late, self.stale = self.stale, []
        self._is_first = self._is_at_end = False

    def poll(self, timeout: float) -> Record | None:
        if self._late:
            return self._late.pop(0)
        partition, offset = self._place.partition, self._place.offset
        start, end = self.get_watermark_offsets(self._place)
        if not start <= offset <= end:
            return self._error(NOT_IN_THE_LOG)
        if offset == end:
            is_new, self._is_at_end = not self._is_at_end, True
            return self._error(KafkaError._PARTITION_EOF) if is_new else None
        bad = self._kafka.unreadable_base(partition, offset, offset + 1)
        if bad is not None:
            error = KafkaError(KafkaError._BAD_COMPRESSION, "made")
            return Record(INGRESS, partition, bad, None, None, [], -1, error)
        self._place.offset += 1
        record = self._kafka.logs[INGRESS, partition][offset]
        return self.poll(timeout) if record.is_missing or record.is_aborted else record

    def consume(self, limit: int, timeout: float) -> list[Record]:
        found = [self.poll(timeout) for _ in range(min(limit, 3))]
        return [record for record in found if record is not None]

    def unassign(self) -> None:
        self._place = TopicPartition(INGRESS, -1, 0)

    def get_watermark_offsets(
        self, place: TopicPartition, timeout: float = 0, cached: bool = False
    ) -> tuple[int, int]:
        start = self._kafka.log_starts.get(place.partition, 0)
        return start, self._kafka.stable_end(place.partition)

    def close(self) -> None:
        self.unassign()

    def _error(self, code: int) -> Record:
        partition, offset = self._place.partition, self._place.offset
        return Record(INGRESS, partition, offset, None, None, [], -1, KafkaError(code, "made"))
