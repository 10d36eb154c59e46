"""One shard's part of a transaction: as it is gathered, planned, and resolved when published."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.protocol.body import Delivery, Headers, IngressPartition
from proxy.protocol.outcomes import DeadLetter, Outcome
from proxy.protocol.position import Position
from storage.store import Entry, Key


class AuxiliaryRecord(NamedTuple):
    """A check-back, or what the proxy writes to the ingress itself: it is no record's end.

    `offset`: of the ingress record that it is about. partition -1 goes by the key. `is_state`: part
    of what the transaction commits, without which nothing may be committed.
    """

    offset: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    is_state: bool = False


class SweptEntry(NamedTuple):
    """An entry that a purge has ended, and what is to be said of it."""

    key: Key
    target: str
    outcome: Outcome


class Place(NamedTuple):
    """When a record that a pause held back may go. resumed_ms: the end of that pause, if a rate
    counts for its records; None: the record may go at once."""

    not_before_ms: int
    resumed_ms: int | None = None


class Hop(NamedTuple):
    """A record that is written to the ingress again instead of being delivered.

    what: its outcome, `rolled` or `requeued`. not_before_ms: when it is tried again, failures:
    how often publishing it has failed; None: as before. resumed_ms: the end of the pause in whose
    queue that time is its place.
    """

    delivery: Delivery
    what: str
    detail: str = ""
    not_before_ms: int | None = None
    failures: int | None = None
    resumed_ms: int | None = None


class Batch(NamedTuple):
    """What a transaction holds of one shard, its due entries still packed."""

    ingress: IngressPartition
    deliveries: Sequence[Entry]
    dead_letters: Sequence[DeadLetter] = ()
    outcomes: Sequence[Outcome] = ()
    auxiliary: Sequence[AuxiliaryRecord] = ()

    @property
    def hops(self) -> list[Hop]:
        """None: what has not been resolved is delivered."""
        return []


class ResolvedBatch(NamedTuple):
    """A batch whose due entries are unpacked: what cannot be delivered now has another outcome."""

    ingress: IngressPartition
    deliveries: Sequence[Delivery]
    dead_letters: Sequence[DeadLetter]
    outcomes: Sequence[Outcome]
    auxiliary: Sequence[AuxiliaryRecord]
    hops: list[Hop]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a transaction holds of a shard, and the position that it makes true.

    `taken_back`: pending entries passed over, since their ids were cancelled or replaced.
    `pending_bytes`: what the bodies of those take that pended, and of half messages asked about.
    `swept`: entries beyond the watermark that a purge has ended; their outcomes are in the batch.
    """

    batch: Batch
    position: Position
    taken_back: int = 0
    pending_bytes: int = 0
    swept: Sequence[SweptEntry] = ()

    @property
    def records(self) -> int:
        """How many records the transaction deals with."""
        batch = self.batch
        ended = len(batch.deliveries) + len(batch.dead_letters) + len(batch.outcomes)
        return ended + len(batch.auxiliary) + self.taken_back


@dataclass(slots=True)
class TransactionBuffer:
    """Collects what ends as it is ingested. `deliveries`: entries due by the watermark already."""

    deliveries: list[Entry] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    auxiliary: list[AuxiliaryRecord] = field(default_factory=list)
    auxiliary_bytes: int = 0
    """How much the values of its auxiliary records take."""
    size_bytes: int = 0
    """How much bodies and values take in all."""

    recalls: int = 0
    """How many of the outcomes are of recalls."""

    def add_delivery(self, entry: Entry) -> None:
        """Take one of these, and count its body."""
        self.deliveries.append(entry)
        self.size_bytes += len(entry[3])

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Take one of these, and count its value."""
        self.dead_letters.append(letter)
        self.size_bytes += len(letter.value or b"")

    def add_auxiliary(self, record: AuxiliaryRecord) -> None:
        """Take one of these, and count its value."""
        self.auxiliary.append(record)
        self.auxiliary_bytes += len(record.value or b"")
        self.size_bytes += len(record.value or b"")

    def __len__(self) -> int:
        ended = len(self.deliveries) + len(self.dead_letters)
        return ended + len(self.outcomes) + len(self.auxiliary)
