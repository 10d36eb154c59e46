"""What the broker held before Spark chose a batch: up to there the batch can be judged.

The committed positions are read first, then it is waited until all that was written with them is
settled. A batch that Spark chooses after that holds all of it. The horizon is kept with the audit's
state, so that a batch that is done again is judged by the same one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from spark_jobs.evidence.inputs import gone_before_ms, in_force
from spark_jobs.kafka.broker import Broker
from spark_jobs.kafka.positions import Snapshot
from spark_jobs.kafka.snapshot import OwnTopics, committed_state, take_snapshot
from spark_jobs.requests.policies import InForce


class Position(NamedTuple):
    """An ingress partition: where its log starts and ended, and O, T and C as committed
    (docs/exactly-once.md#what-is-committed)."""

    partition: int
    log_start: int
    next_offset: int
    watermark_ms: int
    cursor: int
    settled_end: int


@dataclass(frozen=True, slots=True)
class Horizon:
    """partition_counts: of targets. gone_before_ms: as in `Circumstances`."""

    at_ms: int
    topic_id: str
    positions: tuple[Position, ...]
    judging: tuple[InForce, ...]
    policies: Mapping[str, str]
    partition_counts: Mapping[str, int]
    gone_before_ms: Mapping[str, int]

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
            stored["gone_before_ms"],
        )


def take_horizon(
    broker: Broker, own: OwnTopics, group: str, targets: Iterable[str], before: Horizon | None
) -> Horizon:
    """A new horizon. `targets`: names or shell patterns. What the topics had deleted when the audit
    began is known from the horizon before. Raises the errors of `spark_jobs.runtime.errors`."""
    committed = committed_state(broker, own, group)
    taken = take_snapshot(broker, committed, _names(broker, own, targets))
    gone_ms = gone_before_ms(taken.ends, taken.taken_at_ms)
    return Horizon(
        taken.taken_at_ms,
        taken.topic_id,
        tuple(_positions(taken)),
        tuple(in_force(committed)),
        dict(committed.policies),
        {name: count for name, count in taken.partitions.items() if name != own.ingress},
        before.gone_before_ms if before else gone_ms,
    )


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
        )
        for one in taken.ingress
    ]
