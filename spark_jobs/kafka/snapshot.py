"""The content of the topics at one moment, and the committed positions."""

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from spark_jobs.kafka.broker import UNREADABLE_BATCH, Broker, Place
from spark_jobs.records.bounded_json import read_json, whole
from spark_jobs.records.hashes import KEY_PREFIX, HopKeys, hop_key, policy_digest
from spark_jobs.runtime.errors import (
    IngressGrew,
    NothingCommitted,
    NotOurs,
    RangeRefused,
    StillOpen,
    TopicMissing,
)

VERSIONS: Final = (1, 2, 3, 4)
"""Versions of committed metadata.
2: the watermark was set back. Records beyond the watermark need no end until it has passed them
again. 3: some moves came too late. Their outcomes say `missed`. 4: a purge is active. The outcomes
of the purged records name the purge.
"""
LAST_OFFSET: Final = 2**63 - 1
"""The cursor if all entries at the watermark's time have ended."""
OffsetRange = tuple[int, int]
"""Offsets [first, end) of a partition."""


class Range(NamedTuple):
    """Offsets of one partition. `end` is exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition


def count_of(ranges: Iterable[Range]) -> int:
    """Return the number of offsets in the ranges."""
    return sum(max(0, one.end - one.start) for one in ranges)


def first_of(ranges: Iterable[Range], most: int) -> Iterator[Range]:
    """Yield the first `most` offsets in the ranges."""
    for one in ranges:
        end = min(one.end, one.start + most)
        if one.start < end:
            yield one._replace(end=end)
            most -= end - one.start


class Unreadable(NamedTuple):
    """Ingress batches that no client can read."""

    skipped: Mapping[int, Sequence[OffsetRange]] = {}
    """Offsets that an operator has told the proxy to skip, by partition."""
    stuck: Mapping[int, int] = {}
    """The first offset of a batch that nobody has skipped, by partition. Reading ends there."""

    def bases(self, partition: int) -> list[int]:
        stuck = [self.stuck[partition]] if partition in self.stuck else []
        return [base for base, _end in self.skipped.get(partition, ())] + stuck


class PolicyFrom(NamedTuple):
    """The digest of a policy, which is in force from `first_offset` on."""

    first_offset: int
    digest: str


def policies_from(stored: Any) -> tuple[PolicyFrom, ...]:
    """Parse pairs of offset and digest. Raises ValueError or TypeError."""
    return tuple(PolicyFrom(whole(first), str(digest)) for first, digest in stored)


class OverdueText(NamedTuple):
    """Overdue rules (JSON) in the settings topic, and the time of their writing (epoch ms)."""

    written_ms: int
    rules: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The proxy's committed position in a partition (docs/exactly-once.md#what-is-committed).
    An ingress record at offset x that fires at d has ended if x < next_offset and (d, x) <=
    (watermark_ms, cursor). Otherwise only a later record, such as a cancel, can have ended it.
    Without a commit next_offset is None, and no record has ended.
    """

    partition: int
    next_offset: int | None = None
    watermark_ms: int = -1
    cursor: int = LAST_OFFSET
    floor: int = 0
    policies: tuple[PolicyFrom, ...] = ()
    topic_id: str | None = None

    @classmethod
    def from_metadata(cls, partition: int, next_offset: int, metadata: str | None) -> "Committed":
        """Parse the metadata. Raises ValueError if a proxy of this version did not write it."""
        try:
            fields: dict[str, Any] = read_json(metadata, dict)
            if fields["v"] not in VERSIONS:
                raise ValueError(f"version {fields['v']} is not among {VERSIONS}")
            return cls(
                partition,
                next_offset,
                whole(fields["t"]),
                LAST_OFFSET if fields["c"] is None else whole(fields["c"]),
                whole(fields["f"]),
                policies_from(fields["s"]),
                str(fields["i"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{type(error).__name__} {error}") from None


@dataclass(frozen=True, slots=True)
class IngressPosition:
    """An ingress partition with offsets [start, end), judged in [audited_from, audited_to)."""

    committed: Committed
    start: int
    end: int
    audited_from: int
    audited_to: int
    log_end: int
    """The end of the log. It lies beyond `end` while a transaction is open."""

    @property
    def partition(self) -> int:
        return self.committed.partition

    @property
    def next_offset(self) -> int:
        """The first offset that the proxy has not read. Without a commit: the start of the log."""
        committed = self.committed.next_offset
        return self.start if committed is None else committed


@dataclass(frozen=True, slots=True)
class EndRange:
    """The range to read in one partition of a target, dead-letter or outcome topic."""

    range: Range
    has_lost: bool
    """Whether records before the range were deleted unread."""
    first_ms: int | None
    """The latest time at which the deleted records were written; None if unknown."""
    is_open: bool = False
    is_compacted: bool = False
    is_recreated: bool = False
    """Whether the topic was created anew since an earlier audit."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Ranges without open transactions.
    They hold the end of each record that has ended according to the committed positions.
    """

    ingress_topic: str
    topic_id: str
    ingress: tuple[IngressPosition, ...]
    ends: tuple[EndRange, ...]
    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]
    taken_at_ms: int

    @property
    def ingress_ranges(self) -> list[Range]:
        """All offsets of the ingress, audited or not, because successors may lie anywhere."""
        return [
            Range(self.ingress_topic, one.partition, one.start, one.end) for one in self.ingress
        ]

    @property
    def end_ranges(self) -> list[Range]:
        return [one.range for one in self.ends]


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The names of the proxy's own topics."""

    ingress: str = "timer.ingress"
    dead_letters: str = "timer.dead-letters"
    outcomes: str = "timer.outcomes"
    settings: str = "timer.settings"

    @property
    def all(self) -> tuple[str, ...]:
        return self.ingress, self.dead_letters, self.outcomes, self.settings


@dataclass(frozen=True, slots=True)
class Selection:
    """The ingress records that get a verdict, by timestamp or offset. Default: all."""

    at_ms: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """Records with this timestamp or a later one are not selected."""
    offsets: Mapping[int, OffsetRange] = field(default_factory=dict)
    """Selected offsets by partition."""

    @property
    def is_limited(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None or bool(self.offsets)


ALL: Final = Selection()
STABLE_TIMEOUT_S: Final = 60.0
SHOWN_BYTES: Final = 60
UNSTABLE: Final = frozenset({KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT})


def committed_positions(
    broker: Broker, group_id: str, topic: str, partitions: int, topic_id: str
) -> tuple[Committed, ...]:
    """Return one position for each ingress partition. Wait for a commit in progress.
    Raises `NothingCommitted`, `NotOurs`, `StillOpen`.
    """
    places = [TopicPartition(topic, number) for number in range(partitions)]
    try:
        with closing(broker.consumer(group_id)) as consumer:
            found = consumer.committed(places, STABLE_TIMEOUT_S)
    except KafkaException as failed:
        if failed.args[0].code() in UNSTABLE:
            raise StillOpen(
                f"The proxy's commit for {topic} has been under way for {STABLE_TIMEOUT_S:g} s.",
                "Its transaction is open: see docs/operations/runbook.md, and run the audit again.",
            ) from None
        raise broker.explained(failed.args[0], group_id) from None
    positions = tuple(_position(one, group_id) for one in found)
    if all(one.next_offset is None for one in positions):
        raise NothingCommitted(
            f"The group {group_id} has committed nothing for {topic}: no proxy has served it yet.",
            "Start the proxy, or correct --group and --ingress.",
        )
    for one in positions:
        if one.topic_id not in (None, topic_id):
            raise NotOurs(
                f"The committed offset {one.next_offset} of partition {one.partition} belongs to a "
                f"topic {topic} with id {one.topic_id}. The topic there now has id {topic_id}: it "
                "was deleted and created anew.",
                "The old topic's records can no longer be audited.",
            )
    return positions


def _position(place: TopicPartition, group_id: str) -> Committed:
    if place.offset < 0:
        return Committed(place.partition)
    try:
        return Committed.from_metadata(place.partition, place.offset, place.metadata)
    except ValueError as error:
        raise NotOurs(
            f"The group {group_id} has committed offset {place.offset} of {place.topic}, partition "
            f"{place.partition}, with metadata that no proxy of this version wrote: {error}.",
            "Correct --group, or audit with the version of the proxy that runs.",
        ) from None


@dataclass(frozen=True, slots=True)
class SettingsTopic:
    """The readable records of the settings topic that concern one group and ingress topic."""

    group_id: str
    ingress: str
    topic_id: str
    policies: dict[str, str] = field(default_factory=dict)
    """JSON texts by digest, in the order of writing. A text with a wrong digest is left out."""
    served: dict[int, tuple[PolicyFrom, ...]] = field(default_factory=dict)
    """All policies by ingress partition. Committed metadata names only the policies in use."""
    hop_secrets: dict[str, bytes] = field(default_factory=dict)
    overdue: dict[str, OverdueText] = field(default_factory=dict)
    skipped: dict[int, dict[int, int]] = field(default_factory=dict)
    """The end of each skipped batch by ingress partition and first offset."""

    def note(self, key: bytes, text: bytes, at_ms: int) -> None:
        """Take in a record. Raises ValueError, KeyError or TypeError if it cannot be read."""
        served = f"served/{self.group_id}/{self.ingress}/".encode()
        overdue = f"overdue/{self.group_id}/".encode()
        skipped = f"skipped/{self.group_id}/{self.topic_id}/".encode()
        if key == policy_digest(text).encode():
            read_json(text, dict)
            self.policies[key.decode()] = text.decode()
        elif key.startswith(KEY_PREFIX.encode()):
            digest, secret = hop_key(key, text)
            self.hop_secrets.setdefault(digest, secret)
        elif key.startswith(overdue):
            read_json(text, list)
            self.overdue[key.decode()] = OverdueText(at_ms, text.decode())
        elif key.startswith(skipped):
            partition, base = map(int, key.removeprefix(skipped).split(b"/"))
            if min(partition, base) < 0:
                raise ValueError("a number is below 0")
            end = whole(read_json(text, dict)["end"])
            self.skipped.setdefault(partition, {}).setdefault(base, end)
        elif key.startswith(served):
            fields = read_json(text, dict)
            policies = policies_from(fields.get("policies", ()))
            if str(fields["topic_id"]) == self.topic_id:
                self.served[int(key.removeprefix(served))] = policies


def settings_topic(
    broker: Broker, own: OwnTopics, group_id: str, topic_id: str, partitions: int
) -> SettingsTopic:
    """Read the whole settings topic. `topic_id`: the id of the ingress topic."""
    held = SettingsTopic(group_id, own.ingress, topic_id)
    left = {(own.settings, number) for number in range(partitions)}
    for place, message in broker.messages(dict.fromkeys(left, OFFSET_BEGINNING)):
        if message.error() is not None:
            left.discard(place)
            if not left:
                break
            continue
        key, text = message.key() or b"", message.value()
        try:
            if text is not None:
                held.note(key, text, message.timestamp()[1])
        except (ValueError, KeyError, TypeError) as error:
            print(
                f"Skipped a record of {own.settings} that cannot be read, with the key "
                f"{key[:SHOWN_BYTES]!r}: {error}.",
                file=sys.stderr,
            )
    return held


def with_earlier_policies(
    positions: Iterable[Committed], served: Mapping[int, Sequence[PolicyFrom]]
) -> tuple[Committed, ...]:
    """Return the positions with the earlier policies that the committed metadata omits."""
    found = []
    for one in positions:
        first = one.policies[0].first_offset if one.policies else 0
        earlier = [by for by in served.get(one.partition, ()) if by.first_offset < first]
        found.append(replace(one, policies=(*earlier, *one.policies)))
    return tuple(found)


def first_timestamps(broker: Broker, starts: Mapping[Place, int]) -> dict[Place, int]:
    """Return the broker's time of the first committed record from these offsets on.
    Records before these offsets are older than this time. A producer's own
    timestamp proves nothing. If the first record has one, the partition is left out.
    """
    found = {}
    for place, message in broker.first_messages(starts).items():
        if message.error() is None:
            kind, at_ms = message.timestamp()
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                found[place] = at_ms
    return found


# A transaction's commit markers reach its partitions one after the other. A snapshot in this order
# still misses nothing:
#   1. Read the committed positions, once no commit is in progress.
#   2. Ask for the ends of targets, dead letters and outcomes.
#   3. Wait until all transactions with records below these ends are committed or aborted.
#   4. Do steps 2 and 3 for the ingress.
# Then all successors of rewritten records are visible. If a record has ended according to the
# positions, its end is visible, too.

LOOK_EVERY_S: Final = 0.2
SETTLED_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The result of step 1: the committed state, and the ranges of the ingress."""

    own: OwnTopics
    topic_id: str
    committed: tuple[Committed, ...]
    policies: Mapping[str, str]
    hop_keys: HopKeys
    overdue: Sequence[OverdueText]
    ranges: list[Range]
    """Ingress ranges up to the committed offsets. Their records name all targets."""
    taken_at_ms: int
    unreadable: Unreadable = field(default_factory=Unreadable)


def committed_state(broker: Broker, own: OwnTopics, group_id: str) -> CommittedState:
    """Read the proxy's committed state. Raises `AuditError`."""
    taken_at_ms = now_ms()
    partitions = broker.topics()
    _check_there(own.all, partitions)
    ids, count = broker.topic_ids([own.ingress]), partitions[own.ingress]
    _check_there([own.ingress], ids)
    topic_id = ids[own.ingress]
    committed = committed_positions(broker, group_id, own.ingress, count, topic_id)
    held = settings_topic(broker, own, group_id, topic_id, partitions[own.settings])
    committed = with_earlier_policies(committed, held.served)
    named = {policy.digest for one in committed for policy in one.policies}
    for missing in sorted(named - set(held.policies)):
        raise NotOurs(
            f"The committed offsets name the settings {missing}, which the topic {own.settings} "
            "does not hold.",
            "Correct --settings-topic; if its records were deleted, restore them.",
        )
    places = _places([own.ingress], partitions)
    starts, ends = broker.log_starts(places), broker.high_watermarks(places)
    ranges = []
    for one, place in zip(committed, places, strict=True):
        read_to = one.next_offset or 0
        if read_to > ends[place]:
            raise NotOurs(
                f"The committed offset {read_to} lies beyond the end {ends[place]} of "
                f"{own.ingress}, partition {one.partition}: the broker has lost records.",
                "The lost records cannot be audited.",
            )
        ranges.append(Range(*place, starts[place], max(starts[place], read_to)))
    return CommittedState(
        own,
        topic_id,
        committed,
        held.policies,
        HopKeys(topic_id, held.hop_secrets),
        [*held.overdue.values()],
        ranges,
        taken_at_ms,
        _unreadable_in(broker, held.skipped, ranges, ends),
    )


def _unreadable_in(
    broker: Broker,
    skipped: Mapping[int, Mapping[int, int]],
    read: Iterable[Range],
    ends: Mapping[Place, int],
) -> Unreadable:
    """Return skipped batches, and unreadable batches at which the proxy may have stopped."""
    at_ends = {one.place: one.end for one in read if one.end < ends[one.place]}
    first, stuck = broker.first_messages(at_ends, take_unreadable=True), {}
    for (_topic, partition), message in first.items():
        error, base = message.error(), int(message.offset() or 0)
        is_skipped = base in skipped.get(partition, {})
        if error is not None and error.code() in UNREADABLE_BATCH and not is_skipped:
            stuck[partition] = base
    return Unreadable({one: sorted(batches.items()) for one, batches in skipped.items()}, stuck)


def take_snapshot(
    broker: Broker,
    state: CommittedState,
    targets: Iterable[str],
    selection: Selection = ALL,
    wait_s: float | None = None,
) -> Snapshot:
    """Take steps 2 to 4 for these target topics, which must exist. `state` is the result of step 1.
    If a transaction stays open for `wait_s` (SETTLED_WITHIN_S), its partition is read only up to
    this transaction.
    Raises `RangeRefused` if no record is selected. Raises `IngressGrew` if partitions were added
    since step 1. Otherwise the ends of their records would seem to have no record.
    """
    wait_s = SETTLED_WITHIN_S if wait_s is None else wait_s
    own, partitions = state.own, broker.topics()
    topics = sorted({*targets, own.dead_letters, own.outcomes} - {own.ingress, own.settings})
    _check_there(topics, partitions)
    settled = settled_ends(broker, _places(topics, partitions), wait_s)
    before, now = len(state.committed), broker.topics().get(own.ingress, 0)
    if now > before:
        raise IngressGrew(
            f"{own.ingress} has {now} partitions, and had {before} when this audit began.",
            "Run the audit again.",
        )
    ingress_places = [(own.ingress, one.partition) for one in state.committed]
    ingress_settled = settled_ends(broker, ingress_places, wait_s)
    return Snapshot(
        own.ingress,
        state.topic_id,
        _ingress(broker, state, ingress_settled, selection),
        _ends(broker, settled, broker.compacted(topics)),
        {topic: partitions[topic] for topic in (own.ingress, *topics)},
        broker.topic_ids(topics),
        now_ms(),
    )


class SettledEnd(NamedTuple):
    """The end of a partition for readers of committed records, and the end of its log."""

    stable: int
    log_end: int


def settled_ends(broker: Broker, places: Sequence[Place], wait_s: float) -> dict[Place, SettledEnd]:
    """Return the ends once no transaction below them is open, or after `wait_s`."""
    to_reach = broker.high_watermarks(places)
    deadline = time.monotonic() + wait_s
    settled: dict[Place, SettledEnd] = {}
    while True:
        waiting = [place for place in places if place not in settled]
        is_over = time.monotonic() > deadline
        for place, stable in broker.stable_ends(waiting).items():
            if is_over or stable >= to_reach[place]:
                settled[place] = SettledEnd(stable, max(stable, to_reach[place]))
        if len(settled) == len(places):
            return {place: settled[place] for place in places}
        time.sleep(LOOK_EVERY_S)


def now_ms() -> int:
    """Return this machine's time, epoch ms."""
    return time.time_ns() // 1_000_000


def _check_there(topics: Iterable[str], existing: Collection[str]) -> None:
    for topic in topics:
        if topic not in existing:
            raise TopicMissing(
                f"The topic {topic} does not exist.",
                "Correct the names given with --ingress, --dead-letters, --outcomes, "
                "--settings-topic and --target.",
            )


def _places(topics: Iterable[str], partitions: Mapping[str, int]) -> list[Place]:
    return [(topic, number) for topic in topics for number in range(partitions[topic])]


def _ingress(
    broker: Broker, state: CommittedState, settled: Mapping[Place, SettledEnd], selection: Selection
) -> tuple[IngressPosition, ...]:
    """Return the position of each ingress partition. Reading ends before an unreadable batch."""
    stuck = state.unreadable.stuck
    ends = {
        place: min(one.stable, stuck.get(place[1], one.stable)) for place, one in settled.items()
    }
    starts, audited = broker.log_starts([*ends]), _selected(broker, ends, selection)
    if selection.offsets:
        audited = _at_offsets(selection.offsets, starts, ends, state.own.ingress)
    return tuple(
        IngressPosition(
            one,
            starts[place],
            ends[place],
            max(audited[place][0], starts[place]),
            max(audited[place][1], starts[place]),
            settled[place].log_end,
        )
        for one, place in zip(state.committed, ends, strict=True)
    )


def _selected(
    broker: Broker, ends: Mapping[Place, int], selection: Selection
) -> dict[Place, OffsetRange]:
    places, since_ms, until_ms = [*ends], selection.since_ms, selection.until_ms
    first = dict.fromkeys(places, 0) if since_ms is None else broker.offsets_at(places, since_ms)
    beyond = ends if until_ms is None else broker.offsets_at(places, until_ms)

    def within(offset: int, end: int) -> int:
        return end if offset < 0 else min(offset, end)

    chosen = {
        place: (within(first[place], end), within(beyond[place], end))
        for place, end in ends.items()
    }
    is_open = until_ms is None and (since_ms is None or since_ms <= now_ms())
    if not is_open and all(start >= end for start, end in chosen.values()):
        raise RangeRefused(
            f"{places[0][0]} has no record with a timestamp in the requested range.",
            "Correct --since and --until.",
        )
    return chosen


def _at_offsets(
    offsets: Mapping[int, OffsetRange],
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    topic: str,
) -> dict[Place, OffsetRange]:
    found = {place: (end, end) for place, end in ends.items()}
    for partition, (first, beyond) in offsets.items():
        place = topic, partition
        start, end = starts.get(place, 0), ends.get(place, 0)
        if max(first, start) >= min(beyond, end):
            holds = f"holds the offsets {start} to {end - 1}" if start < end else "holds nothing"
            raise RangeRefused(
                f"{topic}, partition {partition}, {holds}: none of the requested offsets.",
                "Correct --offsets.",
            )
        found[place] = first, min(beyond, end)
    return found


def _ends(
    broker: Broker, ends: Mapping[Place, SettledEnd], compacted: Collection[str]
) -> tuple[EndRange, ...]:
    starts = broker.log_starts(list(ends))
    aged = {place: start for place, start in starts.items() if start > 0}
    first_ms = first_timestamps(broker, aged)
    return tuple(
        EndRange(
            Range(*place, starts[place], max(end.stable, starts[place])),
            place in aged,
            first_ms.get(place),
            end.stable < end.log_end,
            place[0] in compacted,
        )
        for place, end in ends.items()
    )
