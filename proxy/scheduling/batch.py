"""Types for one shard's part of a transaction: the ended records, the plan, and the batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from proxy.protocol.body import Delivery, Headers, IngressPartition
from proxy.protocol.outcomes import DeadLetter, Outcome
from proxy.protocol.position import Position
from storage.store import Entry, Key

RecordRef: TypeAlias = tuple[str, int]
"""(`topic/partition/`, offset): the name of one ingress record."""


class OutgoingRecord(NamedTuple):
    """A record to be written. Partition -1: the key decides on the partition."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: Headers
    ref: RecordRef | None = None
    """Name under which a refusal by the broker is noted. None: a refusal fails the transaction."""
    is_dead_letter: bool = False


def auxiliary_ref(ingress: IngressPartition, topic: str, offset: int) -> RecordRef:
    """Return the ref of an auxiliary record. It differs from the ref of its ingress record."""
    return f"{ingress.prefix}{topic}", offset


class SweptEntry(NamedTuple):
    """An entry that a purge has ended, and its outcome."""

    key: Key
    target: str
    outcome: Outcome


class NotBefore(NamedTuple):
    """When a paused record may be delivered. `resumed_ms`: end of the pause, if a queue follows."""

    not_before_ms: int
    resumed_ms: int | None = None


class Hop(NamedTuple):
    """A record that is written to the ingress again instead of being delivered."""

    delivery: Delivery
    what: str
    """The record's outcome, `rolled` or `requeued`."""
    detail: str = ""
    not_before_ms: int | None = None
    """The record is not published before this time. None: unchanged."""
    failures: int | None = None
    """Number of failed publish attempts. None: unchanged."""
    resumed_ms: int | None = None
    """The end of the pause whose queue gave the record its `not_before_ms`."""


One = TypeVar("One", Entry, Delivery)


class Batch(NamedTuple, Generic[One]):
    """One shard's part of a transaction. On the careful path it is resolved: undeliverable entries
    become hops, outcomes or dead letters."""

    ingress: IngressPartition
    deliveries: Sequence[One]
    """Packed entries, or `Delivery` objects once the batch is resolved."""
    dead_letters: Sequence[DeadLetter] = ()
    outcomes: Sequence[Outcome] = ()
    auxiliary: Sequence[OutgoingRecord] = ()
    """Check-backs, expiry requests, moves and the proxy's own state. These end no record."""
    hops: Sequence[Hop] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One shard's part of a transaction, and the shard's position after the commit."""

    batch: Batch[Entry]
    position: Position
    taken_back: int = 0
    """Number of due entries that the batch lacks, because they were cancelled or replaced."""
    pending_bytes: int = 0
    """Bytes of the bodies of due entries, and of check-backs."""
    swept: Sequence[SweptEntry] = ()
    """Entries beyond the watermark that a purge has ended. The batch has their outcomes."""

    @property
    def records(self) -> int:
        """Number of records that the transaction ends or writes."""
        _ingress, deliveries, dead_letters, outcomes, auxiliary, _hops = self.batch
        ended = len(deliveries) + len(dead_letters) + len(outcomes)
        return ended + len(auxiliary) + self.taken_back


@dataclass(slots=True)
class TransactionBuffer:
    """The ends of records that do not become pending, for the next transaction."""

    deliveries: list[Entry] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    auxiliary: list[OutgoingRecord] = field(default_factory=list)
    auxiliary_bytes: int = 0
    size_bytes: int = 0
    recalls: int = 0

    def add_delivery(self, entry: Entry) -> None:
        """Add an entry that fires at or below the watermark."""
        self.deliveries.append(entry)
        self.size_bytes += len(entry[3])

    def add_dead_letter(self, letter: DeadLetter) -> None:
        self.dead_letters.append(letter)
        self.size_bytes += len(letter.value or b"")

    def add_auxiliary(self, record: OutgoingRecord) -> None:
        self.auxiliary.append(record)
        self.auxiliary_bytes += len(record.value or b"")
        self.size_bytes += len(record.value or b"")

    def __len__(self) -> int:
        ended = len(self.deliveries) + len(self.dead_letters)
        return ended + len(self.outcomes) + len(self.auxiliary)
