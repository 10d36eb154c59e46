"""An audit to be made, and the evidence of one that was made."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from spark_jobs.audit_scope import NO_LIMITS, LatenessLimits
from spark_jobs.kafka.broker import Broker, KafkaSettings
from spark_jobs.kafka.positions import OffsetRange, Range, Snapshot
from spark_jobs.kafka.snapshot import CommittedState, OwnTopics, settings_held
from spark_jobs.records.hashes import HopKeys
from spark_jobs.runtime.errors import NotOurs, RangeRefused, ResultsRefused
from spark_jobs.runtime.frames import Location

EVIDENCE_VERSION: Final = 1


class TableHash(NamedTuple):
    """Rows of one audit in a table: how many, and the sum of their hashes, in any order."""

    rows: int
    hash: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything beside the records that an audit judged by: `evidence.json`.

    As long as the topics hold the records, the audit can be repeated: the same ranges, positions,
    settings and instant give the same verdicts. It has no secrets: the settings topic has them.
    """

    version: int
    audit: str
    """The name of the audit."""
    made_by: str
    """The version of this package."""
    spark: str
    bootstrap: str
    group: str
    committed: CommittedState
    taken: Snapshot
    at_ms: int
    limits: LatenessLimits
    goes_on_from: str | None
    """The audit whose open records it began with."""
    tables: Mapping[str, TableHash]
    settled_only: bool = False
    """As in `AuditScope`."""

    def to_json(self) -> dict[str, Any]:
        """Return it as the file has it."""
        bare = replace(self.committed, hop_keys=HopKeys(self.committed.topic_id, {}))
        found: dict[str, Any] = _ADAPTER.dump_python(replace(self, committed=bare), mode="json")
        return found

    def committed_today(self, broker: Broker) -> CommittedState:
        """Return what was committed then, with the secrets of the settings topic.

        Raises `NotOurs` if a topic was created anew since, `RangeRefused` if records were deleted.
        """
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
    """Read the text of an `evidence.json`. Raises `ResultsRefused`."""
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
    starts = broker.log_starts([one.place for one in asked])
    for one in asked:
        if starts[one.place] > one.start:
            raise RangeRefused(
                f"{one.topic}, partition {one.partition}: retention has deleted records since that "
                f"audit, which read from {one.start}; the first one left is {starts[one.place]}.",
                "It cannot be made again; audit what is left.",
            )


def check_same_tables(then: Evidence, now: Evidence) -> None:
    """Raise `ResultsRefused` if a repeated audit found something else."""
    for name, found in then.tables.items():
        if now.tables[name] != found:
            raise ResultsRefused(
                f"Made again, the audit came out otherwise: {name} had {found.rows} rows with the "
                f"hash {found.hash}, and {now.tables[name].rows} with {now.tables[name].hash} now.",
                f"Compare the rows of {then.audit} and {now.audit}.",
            )


@dataclass(frozen=True, slots=True)
class AuditJob:
    """What to audit, and where its results go."""

    kafka: KafkaSettings
    group: str
    own: OwnTopics
    targets: Sequence[str]
    """None: all that the ingress asks for."""
    output: Location
    continue_from: Location | None = None
    """Where the audit is that this one goes on from. What that has read is not read again."""
    limits: LatenessLimits = NO_LIMITS
    again: Evidence | None = None
    """Evidence of an audit to repeat."""
    settled_only: bool = False
    """As in `AuditScope`."""
    most: int | None = None
    """If there are more records to read, read this many and do not judge them yet."""

    def as_in(self, evidence: Evidence) -> "AuditJob":
        """Return the job of that audit, at this broker and with this output.

        Raises `RangeRefused` if the audit that it went on from is not named.
        """
        if evidence.goes_on_from and not self.continue_from:
            raise RangeRefused(
                f"That audit went on from {evidence.goes_on_from}.",
                "Name in --continue-from the place that has it.",
            )
        return replace(
            self,
            group=evidence.group,
            own=evidence.committed.own,
            targets=[*evidence.taken.topic_ids],
            continue_from=self.continue_from if evidence.goes_on_from else None,
            limits=evidence.limits,
            again=evidence,
            settled_only=evidence.settled_only,
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """Which ingress records get a verdict, by their timestamps or offsets; none: all."""

    at_ms: int | None = None
    """The audited instant; None: now."""
    since_ms: int | None = None
    until_ms: int | None = None
    offsets: Mapping[int, OffsetRange] = field(default_factory=dict)
    """By partition."""

    @property
    def is_limited(self) -> bool:
        """Whether some records get no verdict."""
        return self.since_ms is not None or self.until_ms is not None or bool(self.offsets)
