"""The parsed forms of an ingress record. The result depends only on the record and the policy."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypeAlias

from proxy.protocol.outcomes import Rejection
from proxy.protocol.proofs import proofs_of, recall_names, receipt_name
from storage.store import Entry


class Moved(NamedTuple):
    """Fire time and due of the entry that a move replaces."""

    fires_ms: int
    due_ms: int


IS_PAUSED: Final = 0
"""Value of `resumed_ms` while the pause lasts."""


class Scheduled(NamedTuple):
    """A record to deliver, with the entry that the schedule keeps."""

    entry: Entry
    ident: bytes | None
    hop_from: int | None
    """Offset of the entry that was rewritten as this record. None for a producer's record."""
    due_ms: int
    rolls: bool
    """Whether the entry fires before its due, to be rewritten."""
    first: int | None = None
    """Offset at which the producer wrote the record, before all hops. None for a producer's record,
    or after a hop by an old version."""
    retry: tuple[str, int] | None = None
    """On a retry: consumer group and number of failures."""
    moved: Moved | None = None
    """Set on moves. The entry at `hop_from` may still be pending."""
    resumed_ms: int | None = None
    """IS_PAUSED if a pause holds the record back. The end of the pause (epoch ms) if the record
    waits in the queue after a pause. Else None."""
    proofs: tuple[bytes, ...] = ()
    """Digests of a rewritten record's key and id. A recall needs one of them."""


class RejectedHop(NamedTuple):
    """A rewritten record that the policy at its offset rejects."""

    rejection: Rejection
    ident: bytes | None
    hop_from: int
    first: int | None = None
    proofs: tuple[bytes, ...] = ()
    moved: Moved | None = None


class Cancel(NamedTuple):
    """A request to cancel the pending record with this id."""

    ident: bytes


@dataclass(frozen=True, slots=True)
class Recall:
    """A request to cancel the record at `offset` or its newest successor."""

    offset: int
    known: tuple[bytes | None, bytes | None] | None = None
    """Key and id as proof. None: this recall needs no proof."""

    @property
    def proofs(self) -> tuple[bytes, ...]:
        return () if self.known is None else proofs_of(*self.known)

    @property
    def names(self) -> list[bytes]:
        """Return the names of this recall in the register. They are noted if the recalled record
        has ended or lies below the floor. A successor that arrives later with such a name ends."""
        if self.known is None:
            return [receipt_name(self.offset)]
        return recall_names(self.offset, self.proofs)


class Purge(NamedTuple):
    """A request to cancel targets' pending records that are due in this range (epoch ms)."""

    targets: str
    due_from_ms: int
    due_to_ms: int

    def is_for(self, target: str) -> bool:
        return fnmatchcase(target, self.targets)

    def ends(self, target: str, due_ms: int) -> bool:
        return self.due_from_ms <= due_ms <= self.due_to_ms and self.is_for(target)


class Prepare(NamedTuple):
    """A half message. Once committed, `entry` fires at its own due.

    Check-back k of `max_checks` is at first_check_ms + (k - 1) * interval_ms. The half message
    expires one interval after the last check-back.
    """

    ident: bytes
    entry: Entry
    due_ms: int
    rolls: bool
    check_topic: str | None
    first_check_ms: int
    interval_ms: int
    max_checks: int
    written_ms: int


class Decision(NamedTuple):
    """A half message's `commit`, `rollback`, or the proxy's own `expire`."""

    ident: bytes
    what: str
    hop_from: int | None


ParsedRecord: TypeAlias = (
    Scheduled | RejectedHop | Cancel | Recall | Purge | Prepare | Decision | Rejection
)
