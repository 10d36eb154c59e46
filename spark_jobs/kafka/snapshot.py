"""Takes the snapshot that an audit judges by, in an order that misses nothing.

A transaction's markers reach its partitions one after the other. So: 1. the committed positions,
once no commit is under way; 2. where targets, dead letters and outcomes end; 3. wait until what
lies below is committed or aborted; 4. the same for the ingress. Then everything that the positions
call ended can be seen, and so can every successor of a record that was rewritten.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spark_jobs.kafka.broker import Broker, Place
from spark_jobs.kafka.committed import (
    check_policies,
    committed_positions,
    first_timestamps,
    settings_topic,
    with_earlier_policies,
)
from spark_jobs.kafka.positions import (
    Committed,
    EndRange,
    IngressPosition,
    OffsetRange,
    OverdueText,
    Range,
    Snapshot,
    Unreadable,
)
from spark_jobs.records.hop_macs import HopKeys
from spark_jobs.runtime.errors import IngressGrew, NotOurs, RangeRefused, TopicMissing

LOOK_EVERY_S: Final = 0.2
SETTLED_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The names of the proxy's own topics."""

    ingress: str = "timer.ingress"
    dead_letters: str = "timer.dead-letters"
    outcomes: str = "timer.outcomes"
    settings: str = "timer.settings"

    @property
    def all(self) -> tuple[str, ...]:
        """All four."""
        return self.ingress, self.dead_letters, self.outcomes, self.settings


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The first step: what is committed, and what the ingress held then up to there.

    `ranges` is what to read in order to find the targets that anything committed went to.
    """

    own: OwnTopics
    topic_id: str
    committed: tuple[Committed, ...]
    policies: Mapping[str, str]
    hop_keys: HopKeys
    overdue: Sequence[OverdueText]
    partitions: Mapping[str, int]
    ranges: list[Range]
    taken_at_ms: int
    unreadable: Unreadable = field(default_factory=Unreadable)


def committed_state(broker: Broker, own: OwnTopics, group_id: str) -> CommittedState:
    """Read what the proxy has committed. Raises the errors of `spark_jobs.runtime.errors`."""
    taken_at_ms = now_ms()
    partitions = broker.topics()
    for topic in own.all:
        _check_there(topic, partitions)
    topic_id, count = broker.topic_id(own.ingress), partitions[own.ingress]
    committed = committed_positions(broker, group_id, own.ingress, count, topic_id)
    held = settings_topic(broker, own.settings, partitions[own.settings])
    committed = with_earlier_policies(committed, held, group_id, own.ingress)
    check_policies(committed, held.policies, own.settings)
    places = _places([own.ingress], partitions)
    starts, ends = broker.log_starts(places), broker.high_watermarks(places)
    read_to = {
        (own.ingress, one.partition): _read_to(one, ends[own.ingress, one.partition], own.ingress)
        for one in committed
    }
    ranges = [Range(*place, starts[place], max(starts[place], read_to[place])) for place in places]
    hop_keys = HopKeys(topic_id, held.hop_secrets)
    return CommittedState(
        own,
        topic_id,
        committed,
        held.policies,
        hop_keys,
        held.overdue_of(group_id),
        partitions,
        ranges,
        taken_at_ms,
        unreadable_in(broker, held.skipped_of(group_id, topic_id), ranges, ends),
    )


def unreadable_in(
    broker: Broker,
    skipped: Mapping[int, Sequence[OffsetRange]],
    read: Iterable[Range],
    ends: Mapping[Place, int],
) -> Unreadable:
    """What cannot be read of the ingress, in these ranges or where they end: there the proxy may be
    stuck. ends: of the log."""
    places = [((one.topic, one.partition), one.end) for one in read]
    stuck = broker.stuck_from({place: at for place, at in places if at < ends[place]})
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
    """Take steps 2 to 4 for these target topics, which must exist.

    `state` is step 1. Of the ingress, records with a timestamp in [since_ms, until_ms) are
    audited; of `offsets` (by partition) only these, if there are any. A partition in which a
    transaction stays open for `wait_s` (SETTLED_WITHIN_S) is read up to there. Raises
    `RangeRefused` when no record lies in the range, and `IngressGrew` where the ends may be of
    records in partitions that were not there at step 1.
    """
    wait_s = SETTLED_WITHIN_S if wait_s is None else wait_s
    own, partitions = state.own, broker.topics()
    topics = sorted({*targets, own.dead_letters, own.outcomes} - {own.ingress, own.settings})
    for topic in topics:
        _check_there(topic, partitions)
    places = _places(topics, partitions)
    settled = settled_ends(broker, places, wait_s)
    _check_not_grown(own.ingress, state.partitions, broker.topics())
    ingress_places = _places([own.ingress], state.partitions)
    ingress_settled = {
        place: one.before(state.unreadable.stuck.get(place[1]))
        for place, one in settled_ends(broker, ingress_places, wait_s).items()
    }
    ingress_stable = {place: one.stable for place, one in ingress_settled.items()}
    audited = _audited(broker, ingress_places, ingress_stable, since_ms, until_ms)
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
    """Where committed readers see a partition end, and where its log ends; where that is later, a
    transaction has been open for long."""

    stable: int
    log_end: int

    @property
    def is_open(self) -> bool:
        """Whether what lies between is not settled."""
        return self.stable < self.log_end

    def before(self, stuck: int | None) -> "SettledEnd":
        """As far as it can be read. What lies behind is as unknown as an open transaction."""
        return self if stuck is None else self._replace(stable=min(self.stable, stuck))


def settled_ends(broker: Broker, places: Sequence[Place], wait_s: float) -> dict[Place, SettledEnd]:
    """Where each partition ends, once that is settled which lies below where it ends now, or after
    `wait_s`."""
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
    """This machine's time, epoch ms."""
    return time.time_ns() // 1_000_000


def _check_there(topic: str, partitions: Mapping[str, int]) -> None:
    if topic not in partitions:
        raise TopicMissing(
            f"The topic {topic} does not exist.",
            "Correct the names given with --ingress, --dead-letters, --outcomes, "
            "--settings-topic and --target.",
        )


def _check_not_grown(ingress: str, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Whatever is added from here on has no end among those that are settled."""
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
    audited: Mapping[Place, tuple[int, int]],
) -> tuple[IngressPosition, ...]:
    starts = broker.log_starts(list(ends))
    places = [(one, (state.own.ingress, one.partition)) for one in state.committed]
    return tuple(
        IngressPosition(
            one,
            starts[place],
            ends[place].stable,
            *_within(audited[place], starts[place]),
            ends[place].log_end,
        )
        for one, place in places
    )


def _within(audited: tuple[int, int], start: int) -> tuple[int, int]:
    return max(audited[0], start), max(audited[1], start)


def _audited(
    broker: Broker,
    places: Sequence[Place],
    ends: Mapping[Place, int],
    since_ms: int | None,
    until_ms: int | None,
) -> dict[Place, tuple[int, int]]:
    first = dict.fromkeys(places, 0) if since_ms is None else broker.offsets_at(places, since_ms)
    beyond = dict(ends) if until_ms is None else broker.offsets_at(places, until_ms)

    def within(offset: int, end: int) -> int:
        return end if offset < 0 else min(offset, end)

    chosen = {
        place: (within(first[place], ends[place]), within(beyond[place], ends[place]))
        for place in places
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
            end.is_open,
            place[0] in compacted,
        )
        for place, end in ends.items()
    )
