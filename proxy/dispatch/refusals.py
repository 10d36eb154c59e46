"""What the broker has refused of a transaction that had to be aborted, record by record."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from proxy.dispatch.known_targets import UNTIMELY, KnownTargets
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
    """A delivery report that says no: why, and whether it was the record or its dead letter.

    `size_bytes` is that of a record batch with this record only; `was_alone`: it was sent as one.
    """

    rejection: Rejection
    topic: str
    is_dead_letter: bool
    size_bytes: int
    was_alone: bool


@dataclass(slots=True)
class Refusals:
    """Which records of a transaction are refused for good, and which have to be sent apart.

    The broker refuses record batches as a whole: one that is too large, though each record may be
    small, or one of which a single record is invalid. So its topic becomes `limited` first: its
    rules are asked for and kept. Where that is not allowed, record batches that are too large are
    halved until they are taken, or hold one record. A record refused for any other reason goes
    `alone`, in a record batch of its own. What fails then is `refused`, and a dead letter goes
    `without_value`, then `bare`. `listed` are topics whose partitions the client library was made
    to ask for, `unlisted` those for which it is to.
    """

    refused: dict[RecordRef, Rejection] = field(default_factory=dict)
    without_value: set[RecordRef] = field(default_factory=set)
    bare: set[RecordRef] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    alone: set[tuple[str, RecordRef]] = field(default_factory=set)
    reports: dict[RecordRef, Report] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    unlisted: set[str] = field(default_factory=set)

    def is_to_be_listed(self, topic: str) -> bool:
        """The client library does not know a partition of this topic: whether it is to ask."""
        if topic not in self.listed:
            self.unlisted.add(topic)
        return topic in self.unlisted

    def take_unlisted(self) -> set[str]:
        """The topics for which it is to ask now."""
        taken, self.unlisted = self.unlisted, set()
        self.listed |= taken
        return taken

    def learn(self, targets: KnownTargets) -> int:
        """Draw conclusions from the aborted transaction's reports; from how many there were any.

        What they say of sizes goes to `targets`, too: it holds for later transactions.
        """
        were_limited = set(self.limited)
        halved_bytes: Counter[str] = Counter()
        learnt = len(self.unlisted)
        for ref, report in self.reports.items():
            if _tells_sizes(report, were_limited, targets):
                if not report.was_alone:
                    halved_bytes[report.topic] += report.size_bytes
                    learnt += 1
                    continue
                targets.refuse_from(report.topic, report.size_bytes)
            learnt += self._learn_one(ref, report, were_limited, targets)
        for topic, refused_bytes in halved_bytes.items():
            targets.shrink_batches(topic, refused_bytes)
        self.reports = {}
        return learnt

    def _learn_one(
        self, ref: RecordRef, report: Report, were_limited: set[str], targets: KnownTargets
    ) -> bool:
        code = report.rejection.code
        if code == UNTIMELY:
            is_new = not report.is_dead_letter and report.topic not in targets.untimely
            if is_new:
                targets.untimely[report.topic] = report.rejection
            return is_new
        if report.is_dead_letter and code != "too-large":
            return False
        if code in BY_RECORD_BATCH and report.topic not in were_limited:
            self.limited.add(report.topic)
        elif code in BY_RECORD_BATCH and not report.was_alone:
            self.alone.add((report.topic, ref))
        elif report.is_dead_letter:
            if ref in self.bare:
                return False
            (self.bare if ref in self.without_value else self.without_value).add(ref)
        else:
            self.refused[ref] = report.rejection
        return True


def _tells_sizes(report: Report, were_limited: set[str], targets: KnownTargets) -> bool:
    """Whether it is all that can be known of the sizes its topic takes."""
    is_too_large = report.rejection.code == "too-large"
    return is_too_large and report.topic in were_limited and report.topic not in targets.rules
