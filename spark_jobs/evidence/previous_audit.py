"""What an audit knows from the one that it continues: how far that read, and what it left open."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from spark_jobs.kafka.broker import Place
from spark_jobs.requests.parsing import PARSED
from spark_jobs.runtime.frames import Schema

VERSION: Final = 7
KNOWN: Final[Schema] = {
    "known_verdict": "string",
    "known_ends": "bigint",
    "known_from": "string",
    "known_first_ms": "bigint",
    "known_to_others": "boolean",
}
"""What a previous audit found of a record that it left open: its verdict, how many ends it had, the
outcome of the record that it hopped from, when it was first written, and whether others were judged
by it."""

REQUESTS: Final[Schema] = {**PARSED, **KNOWN}
"""PARSED with what is known of each already: nothing of those that are read for the first time."""


class Span(NamedTuple):
    """Offsets of an ingress partition: [read_from, closed_to) is done, but for what is open."""

    read_from: int
    closed_to: int


@dataclass(frozen=True, slots=True)
class ReadSoFar:
    """How far the audits of one installation have read. ends: the first offset not read yet of
    each partition of targets, dead letters and outcomes; topic_ids: of these topics; asked_for:
    targets that were not there.

    judged: where judging goes on in each partition, if more than that was read (in portions). None:
    everything that was read is judged. lost: by partition of the topics with ends, what was deleted
    before a portion could read it: up to when (epoch ms) that was written.
    """

    ingress_topic: str
    topic_id: str
    group: str
    ingress: Mapping[int, Span]
    ends: Mapping[Place, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    asked_for: Sequence[str] = ()
    lost: Mapping[Place, int] = field(default_factory=dict)
    judged: Mapping[Place, int] | None = None

    @property
    def judged_to(self) -> Mapping[Place, int]:
        """Where judging goes on in each partition of the ingress, and of the topics with ends."""
        closed = self.closed(self.ingress_topic)
        return {**closed, **self.ends} if self.judged is None else self.judged

    def closed(self, ingress_topic: str) -> dict[Place, int]:
        """From where on each ingress partition is to be read."""
        return {(ingress_topic, number): span.closed_to for number, span in self.ingress.items()}

    @property
    def topics(self) -> set[str]:
        """All targets, and the topics of dead letters and outcomes."""
        return {*self.asked_for, *(topic for topic, _ in self.ends)}

    def to_json(self) -> dict[str, Any]:
        """As the table `audits` has it."""
        return {
            "version": VERSION,
            "ingress_topic": self.ingress_topic,
            "topic_id": self.topic_id,
            "group": self.group,
            "ingress": [[number, *span] for number, span in self.ingress.items()],
            "ends": _listed(self.ends),
            "topic_ids": dict(self.topic_ids),
            "asked_for": [*self.asked_for],
            "lost": _listed(self.lost),
            "judged": None if self.judged is None else _listed(self.judged),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ReadSoFar":
        """Raises KeyError, TypeError or ValueError for anything else."""
        if stored["version"] != VERSION:
            raise ValueError(f"version {stored['version']} is not {VERSION}")
        return cls(
            str(stored["ingress_topic"]),
            str(stored["topic_id"]),
            str(stored["group"]),
            {int(number): Span(int(start), int(end)) for number, start, end in stored["ingress"]},
            _by_place(stored["ends"]),
            dict(stored["topic_ids"]),
            tuple(stored["asked_for"]),
            _by_place(stored.get("lost", ())),
            None if stored.get("judged") is None else _by_place(stored["judged"]),
        )


def _listed(found: Mapping[Place, int]) -> list[list[Any]]:
    return [[*place, number] for place, number in found.items()]


def _by_place(listed: Iterable[Sequence[Any]]) -> dict[Place, int]:
    return {(str(topic), int(partition)): int(number) for topic, partition, number in listed}


NOTHING_READ: Final = ReadSoFar("", "", "", {}, {})
