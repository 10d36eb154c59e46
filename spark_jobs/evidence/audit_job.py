"""What a person asks of an audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_jobs.circumstances.lateness_limits import NO_LIMITS, LatenessLimits
from spark_jobs.evidence.written_evidence import Evidence
from spark_jobs.kafka.kafka_settings import KafkaSettings
from spark_jobs.kafka.positions import OffsetRange
from spark_jobs.kafka.snapshot import OwnTopics
from spark_jobs.runtime.location import Location


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
