"""What the broker has refused of a transaction that had to be aborted, record by record."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from proxy.dispatch.known_targets import UNTIMELY, KnownTargets
from proxy.protocol.body import IngressPartition
from proxy.protocol.outcomes import Rejection
from proxy.scheduling.batch import AuxiliaryRecord

RecordRef: TypeAlias = tuple[str, int]
"""Origin prefix (`topic/partition/`) and offset: names one ingress record."""

INVALID: Final = "publish-failed"
TOO_LARGE: Final = "too-large"
TRIES: Final = 3
"""So many aborts of one transaction may be due to single records of one topic. Each shows one
refused record. The others that may be refused like it are tried later, a few at a time."""
TRIES_IN_ALL: Final = 20
"""Beyond so many aborts of one transaction one is enough for each topic."""
TRIED_LATER: Final = 3
LATER_EVERY_MS: Final = 250
LATER_AFTER_MS: Final = 1_000
"""Records that may be refused come back in groups of that size, at these intervals: so all others
wait only for a few aborts."""
REMEMBERED: Final = 100_000
FORGOTTEN_AFTER_MS: Final = 120_000
"""A lost session is followed by the next one long before; meanwhile a topic may have changed."""
BY_RECORD_BATCH: Final = frozenset({TOO_LARGE, INVALID})
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
    """Which records are refused for good, and which of a transaction have to be sent apart.

    One worker's: what was refused outlives a lost session, until it is committed.

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
    _tries: Counter[str] = field(default_factory=Counter)
    _invalid: set[str] = field(default_factory=set)
    _later_ms: int = 0
    _later: int = 0
    _began_ms: int = 0
    _learnt_ms: int = 0

    @property
    def are_known(self) -> bool:
        """Whether records are known that an earlier transaction has refused."""
        return bool(self.refused or self.without_value or self.bare)

    def begin(self, now_ms: int) -> None:
        """Another transaction is made: what concerns only the last one is forgotten."""
        for memory in (self.limited, self.alone, self.listed, self.unlisted):
            memory.clear()
        self.reports = {}
        self._tries.clear()
        self._invalid.clear()
        self._began_ms = now_ms
        if now_ms - self._learnt_ms > FORGOTTEN_AFTER_MS:
            self._forget(None)
        while len(self.refused) > REMEMBERED:
            del self.refused[next(iter(self.refused))]

    def committed(self, refs: Iterable[RecordRef]) -> None:
        """These records have ended."""
        if self.are_known:
            self._forget(refs)

    def is_tired(self, topic: str) -> bool:
        """Whether enough has been tried there in this transaction, one record after the other."""
        most = TRIES if self._tries.total() < TRIES_IN_ALL else 1
        return self._tries[topic] >= most

    def is_suspect(self, targets: KnownTargets, topic: str, size_bytes: int) -> bool:
        """Whether a record of this size may be refused there like others before, and is not to be
        tried in this transaction. `size_bytes` is that of a record batch with this record only."""
        if not self.is_tired(topic):
            return False
        limit_bytes = targets.batch_limit_bytes(topic)
        return topic in self._invalid or (limit_bytes is not None and size_bytes > limit_bytes)

    def is_too_large(self, targets: KnownTargets, topic: str, size_bytes: int) -> bool:
        """Whether it is a suspect for its size alone."""
        return topic not in self._invalid and self.is_suspect(targets, topic, size_bytes)

    def later_ms(self, now_ms: int) -> int:
        """When the next suspect is to be tried."""
        self._later += 1
        if self._later % TRIED_LATER == 0:
            self._later_ms += LATER_EVERY_MS
        self._later_ms = max(self._later_ms, now_ms + LATER_AFTER_MS)
        return self._later_ms

    def _forget(self, refs: Iterable[RecordRef] | None) -> None:
        if refs is None:
            self.refused.clear()
            self.without_value.clear()
            self.bare.clear()
            return
        for ref in refs:
            self.refused.pop(ref, None)
            self.without_value.discard(ref)
            self.bare.discard(ref)

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
        alone = [report for report in self.reports.values() if report.was_alone]
        self._tries.update({one.topic for one in alone if one.rejection.code in BY_RECORD_BATCH})
        self._invalid.update(one.topic for one in alone if one.rejection.code == INVALID)
        self.reports = {}
        if learnt:
            self._learnt_ms = self._began_ms
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
