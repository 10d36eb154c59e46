"""Records that the broker has refused, in transactions that were aborted."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from proxy.dispatch.known_targets import UNTIMELY, KnownTargets
from proxy.protocol.outcomes import Rejection
from proxy.scheduling.batch import RecordRef

INVALID: Final = "publish-failed"
TOO_LARGE: Final = "too-large"
TRIES: Final = 3
"""A transaction is aborted at most this often to find single refused records of one topic."""
TRIES_IN_ALL: Final = 20
"""After this many such aborts in all, one abort is enough for each further topic."""
TRIED_LATER: Final = 3
LATER_EVERY_MS: Final = 250
LATER_AFTER_MS: Final = 1_000
"""Suspect records are tried again after this time. TRIED_LATER suspects are tried every
LATER_EVERY_MS, so that few aborts delay other records."""
REMEMBERED: Final = 100_000
FORGOTTEN_AFTER_MS: Final = 120_000
"""Refusals are forgotten after this time, because the topic may have changed. The session after a
lost session begins much sooner, so it still knows the refusals."""
BY_RECORD_BATCH: Final = frozenset({TOO_LARGE, INVALID})
"""The broker may report these codes for a whole record batch, though one record is at fault."""


class Report(NamedTuple):
    """A negative delivery report."""

    rejection: Rejection
    topic: str
    is_dead_letter: bool
    """Whether the dead letter of the record was refused."""
    size_bytes: int
    """Size of a record batch that holds this record alone."""
    was_alone: bool
    """Whether the record was sent alone in its record batch."""


@dataclass(slots=True)
class Refusals:
    """Refused records of one worker, and how a transaction sends its suspect records.

    The broker refuses whole record batches, for their size or for one invalid record. The topic
    becomes `limited`, and the proxy asks for the topic's rules. Without the right to ask, record
    batches are halved until the broker takes them. A record that may be at fault (a suspect) is
    sent `alone`. A suspect refused alone becomes `refused`. A refused dead letter is written
    `without_value`. If this letter is refused, too, a `bare` letter follows: reason and origin.

    `refused`, `without_value` and `bare` outlive a lost session, until the records have ended.
    """

    refused: dict[RecordRef, Rejection] = field(default_factory=dict)
    without_value: set[RecordRef] = field(default_factory=set)
    bare: set[RecordRef] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    alone: set[tuple[str, RecordRef]] = field(default_factory=set)
    reports: dict[RecordRef, Report] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    """Topics about which the client library was made to ask the broker."""
    unlisted: set[str] = field(default_factory=set)
    """Topics about which the client library still has to ask."""
    _tries: Counter[str] = field(default_factory=Counter)
    _invalid: set[str] = field(default_factory=set)
    _later_ms: int = 0
    _later: int = 0
    _began_ms: int = 0
    _learnt_ms: int = 0

    @property
    def are_known(self) -> bool:
        return bool(self.refused or self.without_value or self.bare)

    def begin(self, now_ms: int) -> None:
        """Begin another transaction: forget the facts about the last transaction."""
        for memory in (self.limited, self.alone, self.listed, self.unlisted, self._invalid):
            memory.clear()
        self.reports = {}
        self._tries.clear()
        self._began_ms = now_ms
        if now_ms - self._learnt_ms > FORGOTTEN_AFTER_MS:
            for refs in (self.refused, self.without_value, self.bare):
                refs.clear()
        while len(self.refused) > REMEMBERED:
            del self.refused[next(iter(self.refused))]

    def forget(self, refs: Iterable[RecordRef]) -> None:
        if self.are_known:
            for ref in refs:
                self.refused.pop(ref, None)
                self.without_value.discard(ref)
                self.bare.discard(ref)

    def has_tried_enough(self, topic: str) -> bool:
        """Return whether this transaction has tried enough single records of the topic."""
        most = TRIES if self._tries.total() < TRIES_IN_ALL else 1
        return self._tries[topic] >= most

    def is_suspect(self, targets: KnownTargets, topic: str, size_bytes: int) -> bool:
        """Return whether similar records were refused, so this transaction omits the record."""
        if not self.has_tried_enough(topic):
            return False
        limit_bytes = targets.batch_limit_bytes(topic)
        return topic in self._invalid or (limit_bytes is not None and size_bytes > limit_bytes)

    def is_too_large(self, targets: KnownTargets, topic: str, size_bytes: int) -> bool:
        return topic not in self._invalid and self.is_suspect(targets, topic, size_bytes)

    def later_ms(self, now_ms: int) -> int:
        self._later += 1
        if self._later % TRIED_LATER == 0:
            self._later_ms += LATER_EVERY_MS
        self._later_ms = max(self._later_ms, now_ms + LATER_AFTER_MS)
        return self._later_ms

    def is_to_be_listed(self, topic: str) -> bool:
        """Return whether the client library, which does not know a partition of the topic, must
        first ask the broker."""
        if topic not in self.listed:
            self.unlisted.add(topic)
        return topic in self.unlisted

    def take_unlisted(self) -> set[str]:
        taken, self.unlisted = self.unlisted, set()
        self.listed |= taken
        return taken

    def learn(self, targets: KnownTargets) -> int:
        """Learn from the reports of the aborted transaction. Return the number of new facts."""
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
        if report.is_dead_letter and code != TOO_LARGE:
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
    """Return whether only reports can show the topic's limit, because its rules are unknown."""
    is_too_large = report.rejection.code == TOO_LARGE
    return is_too_large and report.topic in were_limited and report.topic not in targets.rules
