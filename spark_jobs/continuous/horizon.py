"""What the broker held before a batch: up to there the batch reads, and can be judged.

The committed positions are read first, then it is waited until all that was written with them is
settled. What lies below where the topics end then holds all of it. The horizon is kept with the
audit's state, so that a batch that is done again reads and judges the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from spark_jobs.circumstances.overdue_rules import OverdueRules, overdue_rules
from spark_jobs.circumstances.unseen import ALWAYS_MS, Unseen, unseen_of
from spark_jobs.evidence.inputs import in_force
from spark_jobs.kafka.broker import Broker, Place
from spark_jobs.kafka.positions import Range, Snapshot
from spark_jobs.kafka.snapshot import OwnTopics, committed_state, take_snapshot
from spark_jobs.requests.policies import InForce
from spark_jobs.runtime.errors import IngressGrew, NotOurs


class Position(NamedTuple):
    """An ingress partition: where its log starts, O, T, C and F as committed
    (docs/exactly-once.md#what-is-committed), and where it ended: for readers of committed records,
    and later, if a transaction is open."""

    partition: int
    log_start: int
    next_offset: int
    watermark_ms: int
    cursor: int
    stable_end: int
    settled_end: int
    floor: int


@dataclass(frozen=True, slots=True)
class Horizon:
    """partition_counts, unseen, overdue: as in `Circumstances`. began_ms, at_ms: between these it
    was taken. ends: of targets, dead letters and outcomes, what each partition held. topic_ids: of
    these topics."""

    at_ms: int
    topic_id: str
    positions: tuple[Position, ...]
    judging: tuple[InForce, ...]
    policies: Mapping[str, str]
    partition_counts: Mapping[str, int]
    unseen: Mapping[Place, Unseen]
    overdue: OverdueRules | None
    began_ms: int
    ends: tuple[Range, ...]
    topic_ids: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """As the table `state` has it."""
        unseen = [[*place, *one] for place, one in self.unseen.items()]
        overdue = self.overdue and self.overdue.to_json()
        return {**asdict(self), "unseen": unseen, "overdue": overdue}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Horizon":
        """Raises KeyError or TypeError for anything else."""
        return cls(
            stored["at_ms"],
            stored["topic_id"],
            tuple(Position(*one) for one in stored["positions"]),
            tuple(InForce(*one) for one in stored["judging"]),
            stored["policies"],
            stored["partition_counts"],
            {(topic, partition): Unseen(*rest) for topic, partition, *rest in stored["unseen"]},
            stored["overdue"] and OverdueRules.from_json(stored["overdue"]),
            stored["began_ms"],
            tuple(Range(*one) for one in stored["ends"]),
            stored["topic_ids"],
        )


def take_horizon(
    broker: Broker,
    own: OwnTopics,
    group: str,
    targets: Iterable[str],
    audit_topic: str | None,
    before: Horizon | None,
) -> Horizon:
    """A new horizon. `targets`: names or shell patterns; never the audit's own topic. What a
    partition had deleted when it was first seen is known from the horizon before. Raises the errors
    of `spark_jobs.runtime.errors`."""
    committed = committed_state(broker, own, group)
    names = [one for one in _names(broker, own, targets) if one != audit_topic]
    try:
        taken = take_snapshot(broker, committed, names)
    except IngressGrew:
        return take_horizon(broker, own, group, targets, audit_topic, before)
    found = Horizon(
        taken.taken_at_ms,
        taken.topic_id,
        tuple(_positions(taken)),
        tuple(in_force(committed)),
        dict(committed.policies),
        taken.partitions,
        unseen_since(before, unseen_of(taken.ends, taken.taken_at_ms)),
        overdue_rules(committed.overdue),
        committed.taken_at_ms,
        tuple(taken.end_ranges),
        taken.topic_ids,
    )
    if before:
        _check_same_topics(own.ingress, before, found)
    return found


def check_still_there(broker: Broker, ingress: str, horizon: Horizon) -> None:
    """Raises `NotOurs` where a topic that is to be read was deleted or created anew since, and the
    other errors of `spark_jobs.runtime.errors`."""
    held = {**broker.topic_ids([*horizon.topic_ids]), ingress: broker.topic_id(ingress)}
    _check_topic_ids(ingress, horizon, held)


def _check_topic_ids(ingress: str, before: Horizon, held: Mapping[str, str]) -> None:
    known = {**before.topic_ids, ingress: before.topic_id}
    gone = sorted(topic for topic, topic_id in known.items() if held.get(topic) != topic_id)
    if gone:
        raise NotOurs(
            f"The topic {gone[0]} was deleted or created anew, or --target has left it out.",
            "Begin anew in another --output.",
        )


def _check_same_topics(ingress: str, before: Horizon, now: Horizon) -> None:
    """Raises `NotOurs` where what was read of a topic is not there any more."""
    _check_topic_ids(ingress, before, {**now.topic_ids, ingress: now.topic_id})
    ends = {(one.topic, one.partition): one.end for one in now.ends}
    for topic, partition, _start, end in before.ends:
        if ends[topic, partition] < end:
            raise NotOurs(
                f"{topic}, partition {partition}, ends at {ends[topic, partition]}; it had ended "
                f"at {end}: the broker has lost records.",
                "Begin anew in another --output.",
            )


def unseen_since(before: Horizon | None, now: Mapping[Place, Unseen]) -> dict[Place, Unseen]:
    """What had been deleted of each partition when a horizon had it first, and of which nothing can
    be known now: it is compacted, or a transaction is open."""
    if before is None:
        return dict(now)
    known = {(one.topic, one.partition) for one in before.ends}
    lasting = {place: one for place, one in before.unseen.items() if not one.is_open}
    return lasting | {
        place: one for place, one in now.items() if place not in known or one.until_ms == ALWAYS_MS
    }


def _names(broker: Broker, own: OwnTopics, targets: Iterable[str]) -> list[str]:
    """Topics that exist: one that a pattern names may come later."""
    patterns, others = list(targets), set(broker.topics()) - set(own.all)
    return sorted(name for name in others if any(fnmatchcase(name, one) for one in patterns))


def _positions(taken: Snapshot) -> list[Position]:
    return [
        Position(
            one.partition,
            one.start,
            one.next_offset,
            one.committed.watermark_ms,
            one.committed.cursor,
            one.end,
            one.log_end,
            one.committed.floor,
        )
        for one in taken.ingress
    ]
