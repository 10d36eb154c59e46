"""The requests of parsed ingress records: values, pure functions of record and policy.
In a batch the usual records are plain tuples that differ by length: creating instances of named
classes takes five times as long. Only this module knows their form.
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
    """Fire time and due of the entry that a moved record replaces, if that is still pending."""

    fires_ms: int
    due_ms: int


IS_PARKED: Final = 0
"""The pause is not over."""


class Scheduled(NamedTuple):
    """A record to deliver, with the entry that the schedule keeps."""

    entry: Entry
    ident: bytes | None
    hop_from: int | None
    """Offset of the entry that the proxy rewrote as this record. None for a producer's own."""
    due_ms: int
    rolls: bool
    """The entry fires before its due, to be rewritten."""
    first: int | None = None
    """Offset of the producer's record before all hops. None also if an old version rewrote it."""
    retry: tuple[str, int] | None = None
    """Consumer group that returned it, and the number of failures."""
    moved: Moved | None = None
    """Set on moves. The entry at `hop_from` may be pending still."""
    held: int | None = None
    """IS_PARKED during a pause, its end (epoch ms) in the queue after it."""
    proofs: tuple[bytes, ...] = ()
    """Digests by which a recall may prove that it knows a rewritten record."""


class RejectedHop(NamedTuple):
    """A record that the proxy wrote to the ingress and the current policy rejects."""

    rejection: Rejection
    ident: bytes | None
    hop_from: int
    first: int | None = None
    proofs: tuple[bytes, ...] = ()
    moved: Moved | None = None


class Cancel(NamedTuple):
    """A request not to deliver the pending record with this id."""

    ident: bytes


@dataclass(frozen=True, slots=True)
class Recall:
    """A request not to deliver the record at `offset` or its rewritten form."""

    offset: int
    known: tuple[bytes | None, bytes | None] | None = None
    """Key and id, which prove that the sender knows the record. None: no proof needed."""

    @property
    def proofs(self) -> tuple[bytes, ...]:
        return () if self.known is None else proofs_of(*self.known)

    @property
    def names(self) -> list[bytes]:
        """Return the names under which the recall is noted if its record cannot be read."""
        if self.known is None:
            return [receipt_name(self.offset)]
        return recall_names(self.offset, self.proofs)

    def is_proven_by(self, proofs: tuple[bytes, ...]) -> bool:
        """Return whether the recall may end a record with these proofs."""
        return self.known is None or not set(self.proofs).isdisjoint(proofs)


class Purge(NamedTuple):
    """A request not to deliver matching targets' pending records, due in this range (epoch ms)."""

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
    expires one interval after the last. Without a `check_topic` nobody is asked.
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
    """The record's own timestamp."""


class Decision(NamedTuple):
    """A decision about a half message: `commit`, `rollback`, or the proxy's own `expire`."""

    ident: bytes
    what: str
    hop_from: int | None


ParsedRecord: TypeAlias = (
    Scheduled | RejectedHop | Cancel | Recall | Purge | Prepare | Decision | Rejection
)
WithId: TypeAlias = tuple[Entry, bytes]
Compact: TypeAlias = Entry | WithId | ParsedRecord
"""A parsed record: usual without an id, usual with an id, or any other."""

ALL_USUAL: Final = {tuple}
NO_DELAY_MS: Final = 20 * 366 * 86_400_000
"""Delays from here on belong to records without a timestamp (-1)."""
WITH_ID: Final = (Scheduled, RejectedHop, Cancel, Prepare, Decision)


class Waiting(NamedTuple):
    """Usual records in order. `named` and `idents` belong to the entries with ids."""

    entries: Sequence[Entry]
    named: Sequence[Entry]
    idents: Sequence[bytes]


class AskedFor(NamedTuple):
    """Columns of the producers' records with a target."""

    targets: Sequence[str]
    delays_ms: Sequence[int]
    """Time from timestamp to due. Negative if the due was before."""
    retries: Sequence[tuple[str, int]] = ()
    """(group, failures) of records that consumers returned."""


class ParsedBatch:
    """The requests of a batch of records, in order.
    A record that is due more than `rolls_after_ms` after its timestamp fires then, to be rewritten.
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
        """Return all records if each is a usual one, else None."""
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
        """Yield entry, id and due of each record.
        The entry is None unless it is a producer's own delivery. Without an id the due means
        nothing.
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
        """Return the requests of the records from index `first` to before `upto`."""
        records, times = self._records[first:upto], self._timestamps_ms[first:upto]
        if set(map(type, records)) == ALL_USUAL:
            usual = cast("Sequence[Entry | WithId]", records)
            entries = [record[0] if len(record) == 2 else record for record in usual]
            delays_ms = list(map(sub, map(_fires_ms, entries), times))
            if max(delays_ms) < min(self._rolls_after_ms, NO_DELAY_MS):
                return AskedFor([entry[2] for entry in entries], delays_ms)
        return _asked(records, times)

    def idents(self) -> list[bytes]:
        """Return ids that the batch has or names, and the receipt names that count for it."""
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
        """Return the offsets that recalls name."""
        return [one.offset for one in self._records if type(one) is Recall]


def _asked(records: Sequence[Compact], times: Sequence[int]) -> AskedFor:
    """Read records of any form. Without a timestamp the delay is 0."""
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
    """Return the record in its full form."""
    if type(record) is not tuple:
        return record  # type: ignore[return-value]
    if len(record) == 2:
        entry, ident = record
        return Scheduled(entry, ident, None, entry[0], rolls=False)
    entry = cast(Entry, record)
    rolls = has_purpose(entry[3])
    due_ms = delivery_of(entry).due_ms if rolls else entry[0]
    return Scheduled(entry, None, None, due_ms, rolls=rolls)
