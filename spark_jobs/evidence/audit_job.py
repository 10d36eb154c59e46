"""What a person asks of an audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spark_jobs.evidence.lateness_limits import NO_LIMITS, LatenessLimits
from spark_jobs.kafka.kafka_settings import KafkaSettings
from spark_jobs.kafka.positions import OffsetRange
from spark_jobs.kafka.snapshot import OwnTopics


@dataclass(frozen=True, slots=True)
class AuditJob:
    """What to audit, and where its results go. No targets: all that the ingress asks for.
    continue_from: the results of a previous audit; what that has read is not read again. limits:
    how late is a violation."""

    kafka: KafkaSettings
    group: str
    own: OwnTopics
    targets: Sequence[str]
    output: Path
    continue_from: Path | None = None
    limits: LatenessLimits = NO_LIMITS


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
