"""What the broker has refused of a transaction that had to be aborted, record by record."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from proxy.records.message import IngressPartition
from proxy.records.rejection import Rejection
from proxy.scheduling.batch import AuxiliaryRecord

RecordRef: TypeAlias = tuple[str, int]
"""Origin prefix (`topic/partition/`) and offset: names one ingress record."""

BY_RECORD_BATCH: Final = frozenset({"too-large", "publish-failed"})
"""These may be reported of every record of a record batch, though one alone is at fault."""


def auxiliary_ref(ingress: IngressPartition, record: AuxiliaryRecord) -> RecordRef:
    """Names a check-back: its refusal says nothing of the ingress record that it is about."""
    return f"{ingress.prefix}{record.topic}", record.offset


class Report(NamedTuple):
    """A delivery report that says no: why, and whether it was the record or its dead letter."""

    rejection: Rejection
    topic: str
    is_dead_letter: bool


@dataclass(slots=True)
class Refusals:
    """Which records of a transaction are refused for good, and which have to be sent apart.

    The broker refuses record batches as a whole: one that is too large, though each record may be
    small, or one of which a single record is invalid. So its topic becomes `limited` first: its
    rules are asked for and kept. A record refused all the same goes `alone`, in a record batch of
    its own; what fails then is `refused`, and a dead letter goes `without_value`, then `bare`.
    """

    refused: dict[RecordRef, Rejection] = field(default_factory=dict)
    without_value: set[RecordRef] = field(default_factory=set)
    bare: set[RecordRef] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    alone: set[tuple[str, RecordRef]] = field(default_factory=set)
    reports: dict[RecordRef, Report] = field(default_factory=dict)

    def learn(self) -> int:
        """Draw conclusions from the aborted transaction's reports; from how many there were any."""
        were_limited = set(self.limited)
        learnt = sum(
            self._learn_one(ref, report, were_limited) for ref, report in self.reports.items()
        )
        self.reports = {}
        return learnt

    def _learn_one(self, ref: RecordRef, report: Report, were_limited: set[str]) -> bool:
        code = report.rejection.code
        if report.is_dead_letter and code != "too-large":
            return False
        if code in BY_RECORD_BATCH and report.topic not in were_limited:
            self.limited.add(report.topic)
        elif code in BY_RECORD_BATCH and (report.topic, ref) not in self.alone:
            self.alone.add((report.topic, ref))
        elif report.is_dead_letter:
            if ref in self.bare:
                return False
            (self.bare if ref in self.without_value else self.without_value).add(ref)
        else:
            self.refused[ref] = report.rejection
        return True
