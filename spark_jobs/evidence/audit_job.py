"""What an audit is asked to judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_jobs.circumstances import NO_LIMITS, LatenessLimits
from spark_jobs.evidence.previous_audit import Evidence
from spark_jobs.kafka.broker import KafkaSettings
from spark_jobs.kafka.positions import OffsetRange
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.runtime.frames import Location

# What a person asks of an audit.


@dataclass(frozen=True, slots=True)
class AuditJob:
    """What to audit, and where its results go. No targets: all that the ingress asks for.
    continue_from: where the audit is that it goes on from; what that has read is not read again.
    limits: how late is a violation. again: the evidence of an audit that is to be made again.
    settled_only: as in `Circumstances`. most: if there are more records to read, this many are read
    and not judged yet."""

    kafka: KafkaSettings
    group: str
    own: OwnTopics
    targets: Sequence[str]
    output: Location
    continue_from: Location | None = None
    limits: LatenessLimits = NO_LIMITS
    again: Evidence | None = None
    settled_only: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """at_ms: the audited instant (None: now). The rest: which ingress records get a verdict, by
    their timestamps or by offsets of each partition (none: all)."""

    at_ms: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    offsets: Mapping[int, OffsetRange] = field(default_factory=dict)

    @property
    def is_limited(self) -> bool:
        """Whether some records get no verdict."""
        return self.since_ms is not None or self.until_ms is not None or bool(self.offsets)


# Of what each record speaks: an id, or a record by its origin (docs/guide.md#recall).
#
# Records that may end one another have the same *subject*: their id or, without one, the offset
# of the first record of their hops.

SUBJECT: Final = "struct<ident:binary,first:bigint>"
"""ident: an id. first: without one, the offset of the record that all hops have come from."""


def first_written(request: str = "") -> str:
    """SQL of where a record was first written, by what the proxy says of its hops. `request`: what
    stands before the names of its columns."""
    return f"coalesce({request}first_offset, {request}hop_from, offset)"


def own_subject(request: str = "") -> str:
    """SQL of the subject by the record alone; of a recall, by the origin that it names."""
    found = f"""
      CASE WHEN {request}ident IS NOT NULL THEN named_struct('ident', {request}ident, 'first', NULL)
        WHEN {request}kind = 'record'
          THEN named_struct('ident', NULL, 'first', {first_written(request)})
        WHEN {request}kind = 'recall' AND {request}recalled IS NOT NULL
          THEN named_struct('ident', NULL, 'first', {request}recalled) END
    """
    return f"CAST({found} AS {SUBJECT})"


def subject_hash(subject: str) -> str:
    """SQL of a hash of partition and subject; null without one."""
    return (
        f"CASE WHEN {subject}.ident IS NOT NULL THEN xxhash64(partition, {subject}.ident)"
        f" WHEN {subject}.first IS NOT NULL THEN xxhash64(partition, {subject}.first) END"
    )
