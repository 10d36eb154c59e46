"""The figures of an audit, and the one sentence that they come to."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from spark_jobs.circumstances.lateness_limits import NO_LIMITS, LatenessLimits
from spark_jobs.evidence.control_total import PartitionTotal
from spark_jobs.evidence.partition_state import Unverifiable
from spark_jobs.results.formatting import moment
from spark_jobs.verdicts.verdict_names import PENDING

HELD: Final = 0
VIOLATED: Final = 2
NOT_ALL_JUDGED: Final = 3
"""Exit codes of an audit that was made."""
WORDS: Final = {
    HELD: "held",
    VIOLATED: "violated",
    NOT_ALL_JUDGED: "held as far as could be judged",
}
Figures = dict[str, int | None]
"""p50, p99 and max, in ms; null without a delivery."""


class AuditedRange(NamedTuple):
    """What was audited of an ingress partition: offsets [start, end); where the proxy stood."""

    partition: int
    start: int
    end: int
    next_offset: int
    watermark_ms: int
    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Audited:
    """What was audited. at_ms: the moment for which the verdicts are given, epoch ms. uncovered:
    topics in which nobody looked for deliveries."""

    bootstrap: str
    ingress_topic: str
    at_ms: int
    ranges: tuple[AuditedRange, ...]
    unverifiable: tuple[Unverifiable, ...] = ()
    uncovered: tuple[str, ...] = ()
    limits: LatenessLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of an audit.

    late, overdue: later than was asked for, or than is usual (`lateness_limits`); they are
    violations only where it was asked. until_ms: up to when all is judged. not_judged: how many
    records could not be, by reason. attested, claimed: deliveries by whose time it is, the broker's
    or the proxy's. believed: dead letters whose reason no topic shows. control: by ingress
    partition, what was read and judged.
    """

    verdicts: dict[str, int]
    violations: int
    violations_by: dict[str, int]
    lateness_ms: Figures
    late: int
    overdue: int
    until_ms: int
    not_judged: dict[str, int]
    audited: Audited
    attested: int = 0
    claimed: int = 0
    believed: int = 0
    control: tuple[PartitionTotal, ...] = ()

    @property
    def exit_code(self) -> int:
        """HELD, VIOLATED, or NOT_ALL_JUDGED."""
        if self.violations:
            return VIOLATED
        return NOT_ALL_JUDGED if self.not_judged else HELD

    def to_json(self) -> dict[str, Any]:
        """As `summary.json` and `--json` show it."""
        audited = self.audited
        return {
            "result": WORDS[self.exit_code],
            "verdicts": self.verdicts,
            "violations": self.violations,
            "violations_by": self.violations_by,
            "not_judged": self.not_judged,
            "lateness_ms": self.lateness_ms,
            "late": self.late,
            "overdue": self.overdue,
            "believed": self.believed,
            "times": {"attested": self.attested, "claimed": self.claimed},
            "ingress": audited.ingress_topic,
            "control": [one._asdict() for one in self.control],
            "not_read": [*audited.uncovered],
            "ranges": [one._asdict() for one in audited.ranges],
            "unverifiable": [one._asdict() for one in audited.unverifiable],
            "at_ms": audited.at_ms,
            "audited_until_ms": self.until_ms,
        }

    def lines(self) -> Iterator[str]:
        """As a terminal shows it."""
        for verdict, count in self.verdicts.items():
            if count:
                yield f"{count:>12,}  {verdict.replace('_', ' ')}"
        for reason, count in self.not_judged.items():
            yield f"{count:>12,}  could not be judged: {reason}"
        yield f"{self._sentence()} All is judged up to {moment(self.until_ms)}."

    def _sentence(self) -> str:
        if self.violations:
            return f"{self.violations} violations."
        if self.not_judged:
            count = sum(self.not_judged.values())
            return f"Held as far as could be judged: no violation, {count} not judged."
        return "Held: no violation."


NO_VERDICTS: Final = Summary({}, 0, {}, {}, 0, 0, 0, {}, Audited("", "", 0, ()))
"""Of a portion that was read and is not judged yet."""


def with_waiting(summary: Summary, count: int) -> Summary:
    """The same with so many more that are pending: of earlier audits, and not looked at again."""
    pending = summary.verdicts.get(PENDING, 0) + count
    return replace(summary, verdicts={**summary.verdicts, PENDING: pending})
