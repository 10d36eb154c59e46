"""What the broker held before Spark chose a batch: up to there the batch can be judged.

The committed positions are read first, then it is waited until all that was written with them is
settled. A batch that Spark chooses after that holds all of it. The horizon is kept with the audit's
state, so that a batch that is done again is judged by the same one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from spark_jobs.circumstances.overdue_rules import OverdueRules, overdue_rules
from spark_jobs.circumstances.unseen import Unseen, unseen_of
from spark_jobs.evidence.inputs import in_force
from spark_jobs.kafka.broker import Broker, Place
from spark_jobs.kafka.positions import Snapshot
from spark_jobs.kafka.snapshot import OwnTopics, committed_state, take_snapshot
from spark_jobs.requests.policies import InForce


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
    was taken."""

    at_ms: int
    topic_id: str
    positions: tuple[Position, ...]
    judging: tuple[InForce, ...]
    policies: Mapping[str, str]
    partition_counts: Mapping[str, int]
    unseen: Mapping[Place, Unseen]
    overdue: OverdueRules | None
    began_ms: int

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
        )


def take_horizon(
    broker: Broker, own: OwnTopics, group: str, targets: Iterable[str], before: Horizon | None
) -> Horizon:
    """A new horizon. `targets`: names or shell patterns. What the topics had deleted when the audit
    began is known from the horizon before. Raises the errors of `spark_jobs.runtime.errors`."""
    committed = committed_state(broker, own, group)
    taken = take_snapshot(broker, committed, _names(broker, own, targets))
    return Horizon(
        taken.taken_at_ms,
        taken.topic_id,
        tuple(_positions(taken)),
        tuple(in_force(committed)),
        dict(committed.policies),
        taken.partitions,
        _unseen(before, unseen_of(taken.ends, taken.taken_at_ms)),
        overdue_rules(committed.overdue),
        committed.taken_at_ms,
    )


def _unseen(before: Horizon | None, now: Mapping[Place, Unseen]) -> dict[Place, Unseen]:
    """What had been deleted when the audit began, and where a transaction is open now."""
    first = before.unseen if before else now
    lasting = {place: one for place, one in first.items() if not one.is_open}
    return lasting | {place: one for place, one in now.items() if one.is_open}


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
