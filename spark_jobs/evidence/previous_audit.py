"""What earlier audits have written, and what this one writes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from spark_jobs.circumstances import LatenessLimits
from spark_jobs.kafka.broker import Broker, Place
from spark_jobs.kafka.positions import Range, Snapshot
from spark_jobs.kafka.snapshot import CommittedState, settings_held
from spark_jobs.records.hashes import HopKeys
from spark_jobs.requests.parsing import PARSED
from spark_jobs.runtime.errors import NotOurs, RangeRefused, ResultsRefused
from spark_jobs.runtime.frames import Schema

# What an audit judged by beside the records themselves, written down: `evidence.json`.
#
# With it, and as long as the topics hold the records, the audit can be made again: the same
# ranges, positions, settings and instant give the same verdicts. Secrets are not in it: who may
# hop is asked of the settings topic.

EVIDENCE_VERSION: Final = 1


class TableHash(NamedTuple):
    """Of the rows of one audit: how many, and the sum of their hashes, whatever their order."""

    rows: int
    hash: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """audit: its name; made_by: the version of this package; spark: of Spark. goes_on_from: the
    audit whose open records it began with. tables: by name, what it found. settled_only: as in
    `Circumstances`."""

    version: int
    audit: str
    made_by: str
    spark: str
    bootstrap: str
    group: str
    committed: CommittedState
    taken: Snapshot
    at_ms: int
    limits: LatenessLimits
    goes_on_from: str | None
    tables: Mapping[str, TableHash]
    settled_only: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the file has it."""
        bare = replace(self.committed, hop_keys=HopKeys(self.committed.topic_id, {}))
        told: dict[str, Any] = _ADAPTER.dump_python(replace(self, committed=bare), mode="json")
        return told

    def committed_today(self, broker: Broker) -> CommittedState:
        """What was committed then, with the secrets of the settings topic.

        Raises `NotOurs` where a topic was created anew since, `RangeRefused` where records were
        deleted."""
        own, taken = self.committed.own, self.taken
        topics = {own.ingress: taken.topic_id, **taken.topic_ids}
        there = {**broker.topic_ids([*taken.topic_ids]), own.ingress: broker.topic_id(own.ingress)}
        for topic, topic_id in topics.items():
            if there.get(topic) != topic_id:
                raise NotOurs(
                    f"The topic {topic} was deleted or created anew since that audit.",
                    "It cannot be made again.",
                )
        _check_held(broker, [*taken.ingress_ranges, *taken.end_ranges])
        secrets = HopKeys(taken.topic_id, settings_held(broker, own.settings).hop_secrets)
        return replace(self.committed, hop_keys=secrets)


_ADAPTER: Final = TypeAdapter(Evidence)


def read_evidence(text: str) -> Evidence:
    """Of the text of an `evidence.json`; raises `ResultsRefused`."""
    try:
        found = _ADAPTER.validate_python(json.loads(text))
        if found.version != EVIDENCE_VERSION:
            raise ValueError(f"version {found.version} is not {EVIDENCE_VERSION}")
    except (ValueError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise ResultsRefused(
            f"That is no evidence of an audit: {first}.",
            "Name an evidence.json that an audit of this version wrote.",
        ) from None
    return found


def _check_held(broker: Broker, ranges: Iterable[Range]) -> None:
    asked = [one for one in ranges if one.start < one.end]
    places: list[Place] = [(one.topic, one.partition) for one in asked]
    starts = broker.log_starts(places)
    for one, place in zip(asked, places, strict=True):
        if starts[place] > one.start:
            raise RangeRefused(
                f"{one.topic}, partition {one.partition}: retention has deleted records since that "
                f"audit, which read from {one.start}; the first one left is {starts[place]}.",
                "It cannot be made again; audit what is left.",
            )


def check_same_tables(then: Evidence, now: Evidence) -> None:
    """Raises `ResultsRefused` where an audit that was made again found something else."""
    for name, found in then.tables.items():
        if now.tables[name] != found:
            raise ResultsRefused(
                f"Made again, the audit came out otherwise: {name} had {found.rows} rows with the "
                f"hash {found.hash}, and {now.tables[name].rows} with {now.tables[name].hash} now.",
                f"Compare the rows of {then.audit} and {now.audit}.",
            )


# What an audit knows from the one that it continues: how far that read, and what it left open.

STATE_VERSION: Final = 7
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
            "version": STATE_VERSION,
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
        if stored["version"] != STATE_VERSION:
            raise ValueError(f"version {stored['version']} is not {STATE_VERSION}")
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
