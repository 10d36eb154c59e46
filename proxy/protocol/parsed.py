"""Parsed ingress records: pure functions of record and policy.

In a batch the usual records are plain tuples that differ by length, which is five times as fast as
named ones. Only this module knows their form.
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
    """Fire time and due of the entry that a moved record replaces."""

    fires_ms: int
    due_ms: int


IS_PARKED: Final = 0
"""The pause is not over."""


class Scheduled(NamedTuple):
    """A record to deliver, with the entry that the schedule keeps."""

    entry: Entry
    ident: bytes | None
    hop_from: int | None
    """Offset of the entry rewritten as this record. None for a producer's own."""
    due_ms: int
    rolls: bool
    """The entry fires before its due, to be rewritten."""
    first: int | None = None
    """Offset before all hops. None for a producer's own, or if an old version rewrote it."""
    retry: tuple[str, int] | None = None
    """Consumer group and number of failures."""
    moved: Moved | None = None
    """Set on moves. The entry at `hop_from` may still be pending."""
    held: int | None = None
    """IS_PARKED during a pause; in the queue after it, the pause's end (epoch ms)."""
    proofs: tuple[bytes, ...] = ()
    """Proofs that a recall of a rewritten record may have."""


class RejectedHop(NamedTuple):
    """A record of the proxy's own that the current policy rejects."""

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
    """A request to cancel the record at `offset` or its rewritten form."""

    offset: int
    known: tuple[bytes | None, bytes | None] | None = None
    """Key and id as proof. None: no proof needed."""

    @property
    def proofs(self) -> tuple[bytes, ...]:
        return () if self.known is None else proofs_of(*self.known)

    @property
    def names(self) -> list[bytes]:
        """Return the names for noting the recall if its record cannot be read."""
        if self.known is None:
            return [receipt_name(self.offset)]
        return recall_names(self.offset, self.proofs)

    def is_proven_by(self, proofs: tuple[bytes, ...]) -> bool:
        return self.known is None or not set(self.proofs).isdisjoint(proofs)


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
    expires one interval after the last.
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
    """Time from timestamp to due, perhaps negative."""
    retries: Sequence[tuple[str, int]] = ()


class ParsedBatch:
    """The requests of a batch, in order. Entries with delays over `rolls_after_ms` fire then."""

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
        """Return all records, or None if one is unusual."""
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
        """Yield entry, id and due of producers' own deliveries, and a None entry for others."""
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
        records, times = self._records[first:upto], self._timestamps_ms[first:upto]
        if set(map(type, records)) == ALL_USUAL:
            usual = cast("Sequence[Entry | WithId]", records)
            entries = [record[0] if len(record) == 2 else record for record in usual]
            delays_ms = list(map(sub, map(_fires_ms, entries), times))
            if max(delays_ms) < min(self._rolls_after_ms, NO_DELAY_MS):
                return AskedFor([entry[2] for entry in entries], delays_ms)
        return _asked(records, times)

    def idents(self) -> list[bytes]:
        """Return the ids in the batch, and the receipt names for its records."""
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
    """Return the parsed record of a compact one."""
    if type(record) is not tuple:
        return record  # type: ignore[return-value]
    if len(record) == 2:
        entry, ident = record
        return Scheduled(entry, ident, None, entry[0], rolls=False)
    entry = cast(Entry, record)
    rolls = has_purpose(entry[3])
    due_ms = delivery_of(entry).due_ms if rolls else entry[0]
    return Scheduled(entry, None, None, due_ms, rolls=rolls)
