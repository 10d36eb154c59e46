"""What ingress records turn out to ask for: values, pure functions of record and policy.

Most records are a producer's own, to be delivered at their due, perhaps under an id. While many are
parsed at once each of these is a plain tuple, told apart by its length: a tuple of a class of its
own takes five times as long to make. This module alone knows of that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import itemgetter, sub
from typing import Final, NamedTuple, TypeAlias, cast

from proxy.protocol.body import delivery_of, has_purpose
from proxy.protocol.outcomes import Rejection
from proxy.protocol.proofs import proofs_of, recall_names, receipt_name
from storage.store import Entry

_fires_ms = itemgetter(0)


class Moved(NamedTuple):
    """When the entry fires that a record takes the place of, if it still waits, and its due."""

    fires_ms: int
    due_ms: int


IS_PARKED: Final = 0
"""The pause is not over."""


class Scheduled(NamedTuple):
    """A record to be delivered, by the entry that the schedule keeps of it.

    hop_from: offset of the entry that the proxy rewrote as this record. None for a producer's own.
    due_ms: the due that it asks for.
    rolls: the entry fires before its due, to be rewritten.
    first: offset of the producer's record with which the hops began. None for a producer's own, and
    for records that a version without recalls rewrote.
    retry: the consumer group that sent it back, and how often it has failed.
    moved: set if this is a move. The entry at `hop_from` may still wait.
    held: set if a pause held the record back. IS_PARKED during the pause. In the queue after it,
    the end of the pause (epoch ms).
    proofs: by these a recall may prove that it knows a rewritten record (`records.receipts`).
    """

    entry: Entry
    ident: bytes | None
    hop_from: int | None
    due_ms: int
    rolls: bool
    first: int | None = None
    retry: tuple[str, int] | None = None
    moved: Moved | None = None
    held: int | None = None
    proofs: tuple[bytes, ...] = ()


class RejectedHop(NamedTuple):
    """A record that the proxy itself wrote to the ingress, and that today's policy rejects.

    moved: as in `Scheduled`.
    """

    rejection: Rejection
    ident: bytes | None
    hop_from: int
    first: int | None = None
    proofs: tuple[bytes, ...] = ()
    moved: Moved | None = None


class Cancel(NamedTuple):
    """Whatever pends with this id is not to be delivered."""

    ident: bytes


@dataclass(frozen=True, slots=True)
class Recall:
    """The record at this offset, or what it was rewritten as, is not to be delivered.

    known: the key and id that it has to prove that it knows the record; None: it needs no proof.
    """

    offset: int
    known: tuple[bytes | None, bytes | None] | None = None

    @property
    def proofs(self) -> tuple[bytes, ...]:
        """Digests of key and id (`records.receipts`)."""
        return () if self.known is None else proofs_of(*self.known)

    @property
    def names(self) -> list[bytes]:
        """The names under which it is noted if its record cannot be read."""
        if self.known is None:
            return [receipt_name(self.offset)]
        return recall_names(self.offset, self.proofs)

    def is_proven_by(self, proofs: tuple[bytes, ...]) -> bool:
        """Whether it takes back a record that has these proofs."""
        return self.known is None or not set(self.proofs).isdisjoint(proofs)


class Purge(NamedTuple):
    """What waits for targets of this shell pattern, due from the one time to the other (epoch ms),
    is not to be delivered."""

    targets: str
    due_from_ms: int
    due_to_ms: int

    def is_for(self, target: str) -> bool:
        """Whether it ends any record for this target."""
        return fnmatchcase(target, self.targets)

    def ends(self, target: str, due_ms: int) -> bool:
        """Whether it ends a record for this target with this due."""
        return self.due_from_ms <= due_ms <= self.due_to_ms and self.is_for(target)


class Prepare(NamedTuple):
    """A half message. `entry` fires when it has been committed, by its own due.

    Check-back k of `max_checks` is at first_check_ms + (k - 1) * interval_ms; one interval after
    the last it expires. No check_topic: nobody is asked. written_ms: its own timestamp.
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
    """What becomes of a half message: `commit`, `rollback`, or the proxy's own `expire`."""

    ident: bytes
    what: str
    hop_from: int | None


ParsedRecord: TypeAlias = (
    Scheduled | RejectedHop | Cancel | Recall | Purge | Prepare | Decision | Rejection
)
WithId: TypeAlias = tuple[Entry, bytes]
Compact: TypeAlias = Entry | WithId | ParsedRecord
"""A record as `RequestReader` parses it: a usual one without an id, one with an id, any other."""

ALL_USUAL: Final = {tuple}
NO_DELAY_MS: Final = 20 * 366 * 86_400_000
"""From the timestamp -1, of a record without one, on."""
WITH_ID: Final = (Scheduled, RejectedHop, Cancel, Prepare, Decision)


class Waiting(NamedTuple):
    """Usual records in their order: all `entries`; of those with ids, `named`, the `idents`."""

    entries: Sequence[Entry]
    named: Sequence[Entry]
    idents: Sequence[bytes]


class AskedFor(NamedTuple):
    """Producers' own records that have a target, column by column: the target, and how long they
    are to wait for their due, negative where that was before. retries: (group, failures) of those
    that consumers have sent back."""

    targets: Sequence[str]
    delays_ms: Sequence[int]
    retries: Sequence[tuple[str, int]] = ()


class ParsedBatch:
    """What the records of a batch, with such timestamps, ask for, in their order.

    rolls_after_ms: what is to wait for longer fires so long after its timestamp, to be rewritten.
    """

    __slots__ = ("_records", "_rolls_after_ms", "_timestamps_ms")

    def __init__(
        self, records: Sequence[Compact], timestamps_ms: Sequence[int], rolls_after_ms: int
    ) -> None:
        self._records, self._timestamps_ms = records, timestamps_ms
        self._rolls_after_ms = rolls_after_ms

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> ParsedRecord:
        return full(self._records[index])

    def waiting(self) -> Waiting | None:
        """All records, if each is a usual one; else None."""
        if set(map(type, self._records)) != ALL_USUAL:
            return None
        usual = cast("Sequence[Entry | WithId]", self._records)
        with_ids = [record for record in usual if len(record) == 2]
        if not with_ids:
            return Waiting(cast("Sequence[Entry]", usual), (), ())
        named, idents = zip(*with_ids, strict=True)
        if len(named) == len(usual):
            return Waiting(named, named, idents)
        entries = [record[0] if len(record) == 2 else record for record in usual]
        return Waiting(entries, named, idents)

    def own(self) -> Iterator[tuple[Entry | None, bytes | None, int]]:
        """Each record's entry, id and due, where it is a producer's own that is to be delivered.

        The entry is None for the others. Without an id the due does not count.
        """
        for record in self._records:
            if type(record) is tuple:
                if len(record) == 2:
                    yield record[0], record[1], record[0][0]
                else:
                    yield record, None, 0  # type: ignore[misc]
            elif type(record) is Scheduled and record.hop_from is None and record.ident is not None:
                yield record.entry, record.ident, record.due_ms
            else:
                yield None, None, 0

    def asked(self, first: int, upto: int) -> AskedFor:
        """What the records from index `first` to before `upto` ask for."""
        records, times = self._records[first:upto], self._timestamps_ms[first:upto]
        if set(map(type, records)) == ALL_USUAL:
            usual = cast("Sequence[Entry | WithId]", records)
            entries = [record[0] if len(record) == 2 else record for record in usual]
            delays_ms = list(map(sub, map(_fires_ms, entries), times))
            if max(delays_ms) < min(self._rolls_after_ms, NO_DELAY_MS):
                return AskedFor([entry[2] for entry in entries], delays_ms)
        return _asked(records, times)

    def idents(self) -> list[bytes]:
        """The ids that records of the batch have or name, and the names of receipts that count for
        them."""
        found: list[bytes | None] = []
        for record in self._records:
            if type(record) is tuple:
                if len(record) == 2:
                    found.append(record[1])
            elif isinstance(record, WITH_ID):
                found.append(record.ident)
                if isinstance(record, Scheduled | RejectedHop) and record.first is not None:
                    found.append(receipt_name(record.first))
                    found += recall_names(record.first, record.proofs)
            elif isinstance(record, Recall):
                found.append(receipt_name(record.offset))
        return [ident for ident in found if ident is not None]

    def recalled(self) -> list[int]:
        """The offsets that its recalls name."""
        return [one.offset for one in self._records if type(one) is Recall]


def _asked(records: Sequence[Compact], times: Sequence[int]) -> AskedFor:
    """The same of records of any form; of one without a time of its own the delay is 0."""
    found = [
        (one, one.due_ms - time_ms if time_ms >= 0 else 0)
        for one, time_ms in zip(map(full, records), times, strict=True)
        if isinstance(one, Prepare) or (isinstance(one, Scheduled) and one.hop_from is None)
    ]
    retries = [one.retry for one, _ in found if isinstance(one, Scheduled) and one.retry]
    return AskedFor(
        [one.entry[2] for one, _ in found], [delay_ms for _, delay_ms in found], retries
    )


def full(record: Compact) -> ParsedRecord:
    """The record in the form that all but the usual path work with."""
    if type(record) is not tuple:
        return record  # type: ignore[return-value]
    if len(record) == 2:
        entry, ident = record
        return Scheduled(entry, ident, None, entry[0], rolls=False)
    entry = cast(Entry, record)
    rolls = has_purpose(entry[3])
    due_ms = delivery_of(entry).due_ms if rolls else entry[0]
    return Scheduled(entry, None, None, due_ms, rolls=rolls)
