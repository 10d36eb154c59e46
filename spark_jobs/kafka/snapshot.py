"""The content of the topics at one moment, and the committed positions."""

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from spark_jobs.kafka.broker import Broker, Place
from spark_jobs.kafka.positions import (
    Committed,
    EndRange,
    IngressPosition,
    OffsetRange,
    OverdueText,
    PolicyFrom,
    Range,
    Snapshot,
    Unreadable,
    policies_from,
)
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

STABLE_TIMEOUT_S: Final = 60.0
SERVED: Final = "served/"
OVERDUE: Final = "overdue/"
SKIPPED: Final = "skipped/"
SHOWN_BYTES: Final = 60
UNSTABLE: Final = frozenset({KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT})


def committed_positions(
    broker: Broker, group_id: str, topic: str, partitions: int, topic_id: str
) -> tuple[Committed, ...]:
    """Return one position for each ingress partition. Wait for a commit in progress.
    Raises `NothingCommitted`, `NotOurs`, `StillOpen`.
    """
    places = [TopicPartition(topic, number) for number in range(partitions)]
    positions = tuple(_position(one, group_id) for one in _asked(broker, group_id, places))
    if all(one.next_offset is None for one in positions):
        raise NothingCommitted(
            f"The group {group_id} has committed nothing for {topic}: no proxy has served it yet.",
            "Start the proxy, or correct --group and --ingress.",
        )
    for one in positions:
        if one.topic_id not in (None, topic_id):
            raise NotOurs(
                f"The committed offset {one.next_offset} of partition {one.partition} belongs to a "
                f"topic {topic} with id {one.topic_id}; the one there now has id {topic_id}: it "
                "was deleted and created anew.",
                "What became of the old topic's records cannot be audited any more.",
            )
    return positions


def _asked(broker: Broker, group_id: str, places: list[TopicPartition]) -> list[TopicPartition]:
    try:
        with closing(broker.consumer(group_id)) as consumer:
            return consumer.committed(places, STABLE_TIMEOUT_S)
    except KafkaException as failed:
        if failed.args[0].code() in UNSTABLE:
            raise StillOpen(
                f"The proxy's commit for {places[0].topic} has been under way for "
                f"{STABLE_TIMEOUT_S:g} s.",
                "Its transaction is open: see docs/operations/runbook.md, and run the audit again.",
            ) from None
        raise broker.explained(failed.args[0]) from None


def _position(place: TopicPartition, group_id: str) -> Committed:
    if place.offset < 0:
        return Committed(place.partition)
    try:
        return Committed.from_metadata(place.partition, place.offset, place.metadata)
    except ValueError as error:
        raise NotOurs(
            f"The group {group_id} has committed offset {place.offset} of {place.topic}, partition "
            f"{place.partition}, with metadata that no proxy of this version wrote: {error}.",
            "Correct --group; or take the version of kafka-delay-proxy that runs.",
        ) from None


class SettingsTopic(NamedTuple):
    """The content of the settings topic, without unreadable records."""

    policies: dict[str, str]
    """JSON by digest, in the order written. A text with another digest is left out."""
    served: dict[str, tuple[str, tuple[PolicyFrom, ...]]]
    """Topic ids and all policies by key. Committed metadata names only policies still needed."""
    hop_secrets: dict[str, bytes]
    overdue: dict[str, OverdueText]
    skipped: dict[str, int]
    """The end of each skipped batch, by key."""

    def skipped_of(self, group_id: str, topic_id: str) -> dict[int, list[OffsetRange]]:
        own = f"{SKIPPED}{group_id}/{topic_id}/"
        found: dict[int, list[OffsetRange]] = {}
        for key, end in self.skipped.items():
            if key.startswith(own):
                partition, base = map(int, key.removeprefix(own).split("/"))
                found.setdefault(partition, []).append((base, end))
        return {partition: sorted(ranges) for partition, ranges in found.items()}

    def overdue_of(self, group_id: str) -> list[OverdueText]:
        own = f"{OVERDUE}{group_id}/"
        return [text for key, text in self.overdue.items() if key.startswith(own)]


def settings_topic(broker: Broker, topic: str, partitions: int) -> SettingsTopic:
    """Read the whole settings topic."""
    held = SettingsTopic({}, {}, {}, {}, {})
    starts = {(topic, number): OFFSET_BEGINNING for number in range(partitions)}
    for message in _to_end(broker, starts):
        try:
            _note(message, held)
        except (ValueError, KeyError, TypeError) as error:
            shown = (message.key() or b"")[:SHOWN_BYTES]
            print(
                f"Passed over a record of {topic} that cannot be read, with the key {shown!r}: "
                f"{error}.",
                file=sys.stderr,
            )
    return held


def settings_held(broker: Broker, topic: str) -> SettingsTopic:
    """Read the settings topic of this name."""
    return settings_topic(broker, topic, broker.topics()[topic])


def _note(message: Message, held: SettingsTopic) -> None:
    key, text = message.key() or b"", message.value()
    if text is None:
        return
    if key == policy_digest(text).encode():
        read_json(text, dict)
        held.policies[key.decode()] = text.decode()
    elif key.startswith(KEY_PREFIX.encode()):
        digest, secret = hop_key(key, text)
        held.hop_secrets.setdefault(digest, secret)
    elif key.startswith(OVERDUE.encode()):
        read_json(text, list)
        held.overdue[key.decode()] = OverdueText(message.timestamp()[1], text.decode())
    elif key.startswith(SKIPPED.encode()):
        held.skipped.setdefault(_skipped_key(key), whole(read_json(text, dict)["end"]))
    elif key.startswith(SERVED.encode()):
        fields = read_json(text, dict)
        policies = policies_from(fields.get("policies", ()))
        held.served[key.decode("utf-8", "replace")] = str(fields["topic_id"]), policies


def _skipped_key(key: bytes) -> str:
    _rest, partition, base = key.decode().rsplit("/", 2)
    if min(int(partition), int(base)) < 0:
        raise ValueError("a number is below 0")
    return key.decode()


def with_earlier_policies(
    positions: Iterable[Committed], held: SettingsTopic, group_id: str, topic: str
) -> tuple[Committed, ...]:
    """Return the positions with the earlier policies that their metadata does not name."""

    def of(one: Committed) -> Committed:
        nothing: tuple[str, tuple[PolicyFrom, ...]] = "", ()
        topic_id, known = held.served.get(f"{SERVED}{group_id}/{topic}/{one.partition}", nothing)
        if topic_id != one.topic_id:
            return one
        first = one.policies[0].first_offset
        earlier = [policy for policy in known if policy.first_offset < first]
        return replace(one, policies=(*earlier, *one.policies))

    return tuple(map(of, positions))


def _check_policies(positions: Iterable[Committed], texts: dict[str, str], topic: str) -> None:
    named = {policy.digest for one in positions for policy in one.policies}
    missing = sorted(named - set(texts))
    if missing:
        raise NotOurs(
            f"The committed offsets name the settings {missing[0]}, which the topic {topic} does "
            "not hold.",
            "Correct --settings-topic; if its records were deleted, restore them.",
        )


def first_timestamps(broker: Broker, starts: dict[Place, int]) -> dict[Place, int]:
    """Return the broker's time of the first committed record from these offsets on.
    Earlier records are older. Producers' own times do not prove that, and are left out.
    """
    found: dict[Place, int] = {}
    for message in _to_end(broker, starts, first_only=True):
        kind, at_ms = message.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            found[message.topic() or "", message.partition() or 0] = at_ms
    return found


def _to_end(
    broker: Broker, starts: Mapping[Place, int], *, first_only: bool = False
) -> Iterator[Message]:
    left = set(starts)
    for place, message in broker.messages(starts) if starts else ():
        is_end = message.error() is not None
        if not is_end and place in left:
            yield message
        if is_end or first_only:
            left.discard(place)
        if not left:
            return


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


# The order of a snapshot misses nothing, although a transaction's markers reach its partitions one
# after the other:
#   1. Read the committed positions, once no commit is in progress.
#   2. Ask for the ends of targets, dead letters and outcomes.
#   3. Wait until everything below them is committed or aborted.
#   4. Do the same for the ingress.
# Then all ends that the positions imply are visible, and all successors of rewritten records.

LOOK_EVERY_S: Final = 0.2
SETTLED_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class CommittedState:
    """Step 1: the committed state, and the ingress up to there."""

    own: OwnTopics
    topic_id: str
    committed: tuple[Committed, ...]
    policies: Mapping[str, str]
    hop_keys: HopKeys
    overdue: Sequence[OverdueText]
    partitions: Mapping[str, int]
    ranges: list[Range]
    """The ranges that name all targets of committed records."""
    taken_at_ms: int
    unreadable: Unreadable = field(default_factory=Unreadable)


def committed_state(broker: Broker, own: OwnTopics, group_id: str) -> CommittedState:
    """Read the proxy's committed state. Raises `AuditError`."""
    taken_at_ms = now_ms()
    partitions = broker.topics()
    _check_there(own.all, partitions)
    topic_id, count = broker.topic_id(own.ingress), partitions[own.ingress]
    committed = committed_positions(broker, group_id, own.ingress, count, topic_id)
    held = settings_topic(broker, own.settings, partitions[own.settings])
    committed = with_earlier_policies(committed, held, group_id, own.ingress)
    _check_policies(committed, held.policies, own.settings)
    places = _places([own.ingress], partitions)
    starts, ends = broker.log_starts(places), broker.high_watermarks(places)
    ranges = [
        Range(*place, starts[place], max(starts[place], _read_to(one, ends[place], own.ingress)))
        for one, place in zip(committed, places, strict=True)
    ]
    return CommittedState(
        own,
        topic_id,
        committed,
        held.policies,
        HopKeys(topic_id, held.hop_secrets),
        held.overdue_of(group_id),
        partitions,
        ranges,
        taken_at_ms,
        _unreadable_in(broker, held.skipped_of(group_id, topic_id), ranges, ends),
    )


def _unreadable_in(
    broker: Broker,
    skipped: Mapping[int, Sequence[OffsetRange]],
    read: Iterable[Range],
    ends: Mapping[Place, int],
) -> Unreadable:
    """Return unreadable batches in these ranges and at their ends, where the proxy may stand."""
    stuck = broker.stuck_from({one.place: one.end for one in read if one.end < ends[one.place]})
    return Unreadable(
        skipped,
        {
            partition: base
            for (_topic, partition), base in stuck.items()
            if base not in dict(skipped.get(partition, ()))
        },
    )


def take_snapshot(
    broker: Broker,
    state: CommittedState,
    targets: Iterable[str],
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    offsets: Mapping[int, OffsetRange] | None = None,
    wait_s: float | None = None,
) -> Snapshot:
    """Take steps 2 to 4 for these target topics, which must exist. `state` is step 1.
    Ingress records with a timestamp in [since_ms, until_ms) are audited, or the records at
    `offsets` (by partition). If a transaction stays open for `wait_s` (SETTLED_WITHIN_S), its
    partition is read up to there. Raises `RangeRefused` if no record lies in the range. Raises
    `IngressGrew` if partitions were added since step 1.
    """
    wait_s = SETTLED_WITHIN_S if wait_s is None else wait_s
    own, partitions = state.own, broker.topics()
    topics = sorted({*targets, own.dead_letters, own.outcomes} - {own.ingress, own.settings})
    _check_there(topics, partitions)
    settled = settled_ends(broker, _places(topics, partitions), wait_s)
    _check_not_grown(own.ingress, state.partitions, broker.topics())
    ingress_places = _places([own.ingress], state.partitions)
    ingress_settled = {
        place: one.before(state.unreadable.stuck.get(place[1]))
        for place, one in settled_ends(broker, ingress_places, wait_s).items()
    }
    ingress_stable = {place: one.stable for place, one in ingress_settled.items()}
    audited = _audited(broker, ingress_stable, since_ms, until_ms)
    if offsets:
        audited = _only(offsets, audited, broker.log_starts(ingress_places), own.ingress)
    return Snapshot(
        own.ingress,
        state.topic_id,
        _ingress(broker, state, ingress_settled, audited),
        _ends(broker, settled, broker.compacted(topics)),
        state.policies,
        {topic: partitions[topic] for topic in (own.ingress, *topics)},
        broker.topic_ids(topics),
        now_ms(),
    )


class SettledEnd(NamedTuple):
    """The end of a partition for committed readers, and of its log with open transactions."""

    stable: int
    log_end: int

    def before(self, stuck: int | None) -> "SettledEnd":
        return self if stuck is None else self._replace(stable=min(self.stable, stuck))


def settled_ends(broker: Broker, places: Sequence[Place], wait_s: float) -> dict[Place, SettledEnd]:
    """Return the ends once everything below them is settled, or after `wait_s`."""
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


def _check_there(topics: Iterable[str], partitions: Mapping[str, int]) -> None:
    for topic in topics:
        if topic not in partitions:
            raise TopicMissing(
                f"The topic {topic} does not exist.",
                "Correct the names given with --ingress, --dead-letters, --outcomes, "
                "--settings-topic and --target.",
            )


def _check_not_grown(ingress: str, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Raise `IngressGrew`: ends of records in new partitions would seem to have no record."""
    if now.get(ingress, 0) > before[ingress]:
        raise IngressGrew(
            f"{ingress} has {now[ingress]} partitions, and had {before[ingress]} when this audit "
            "began.",
            "Audit again.",
        )


def _places(topics: Iterable[str], partitions: Mapping[str, int]) -> list[Place]:
    return [(topic, number) for topic in topics for number in range(partitions[topic])]


def _read_to(one: Committed, end: int, topic: str) -> int:
    if one.next_offset is not None and one.next_offset > end:
        raise NotOurs(
            f"The committed offset {one.next_offset} lies beyond the end {end} of {topic}, "
            f"partition {one.partition}: the broker has lost records.",
            "What became of them cannot be audited.",
        )
    return one.next_offset or 0


def _ingress(
    broker: Broker,
    state: CommittedState,
    ends: Mapping[Place, SettledEnd],
    audited: Mapping[Place, OffsetRange],
) -> tuple[IngressPosition, ...]:
    starts = broker.log_starts(list(ends))
    return tuple(
        IngressPosition(
            one,
            starts[place],
            ends[place].stable,
            max(audited[place][0], starts[place]),
            max(audited[place][1], starts[place]),
            ends[place].log_end,
        )
        for one in state.committed
        for place in [(state.own.ingress, one.partition)]
    )


def _audited(
    broker: Broker, ends: Mapping[Place, int], since_ms: int | None, until_ms: int | None
) -> dict[Place, OffsetRange]:
    places = list(ends)
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
            f"{places[0][0]} holds no record with a timestamp in the range asked for.",
            "Correct --since and --until.",
        )
    return chosen


def _only(
    offsets: Mapping[int, OffsetRange],
    audited: Mapping[Place, OffsetRange],
    starts: Mapping[Place, int],
    topic: str,
) -> dict[Place, OffsetRange]:
    found = {place: (end, end) for place, (_, end) in audited.items()}
    for partition, (first, beyond) in offsets.items():
        start, end = starts.get((topic, partition), 0), found.get((topic, partition), (0, 0))[1]
        if max(first, start) >= min(beyond, end):
            holds = f"holds the offsets {start} to {end - 1}" if start < end else "holds nothing"
            raise RangeRefused(
                f"{topic}, partition {partition}, {holds}: none of those asked for.",
                "Correct --offsets.",
            )
        found[topic, partition] = first, min(beyond, end)
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
