"""What an ingress record turns out to be when it is read (DESIGN 2, 5.3).

Most are a plain `Entry`. All are values, and pure functions of the record and the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

from proxy.records.rejection import Rejection
from storage.store import Entry


class Known(NamedTuple):
    """An entry that others may refer to, or that goes on from an earlier one.

    hop_from: offset of the entry that the proxy rewrote as this record; None: a producer's own.
    """

    entry: Entry
    ident: bytes | None
    hop_from: int | None
    due_ms: int
    rolls: bool


class Stray(NamedTuple):
    """A record that the proxy itself wrote, and that today's policy rejects."""

    rejection: Rejection
    ident: bytes | None
    hop_from: int


class Cancel(NamedTuple):
    """Whatever pends with this id is not to be delivered."""

    ident: bytes


class Prepare(NamedTuple):
    """A half message. `entry` fires when it has been committed, by its own due.

    Check k of `max_checks` is at first_check_ms + (k - 1) * interval_ms; one interval after the
    last it expires. No check_topic: nobody is asked.
    """

    ident: bytes
    entry: Entry
    due_ms: int
    rolls: bool
    check_topic: str | None
    first_check_ms: int
    interval_ms: int
    max_checks: int


class Decision(NamedTuple):
    """What becomes of a half message: `commit`, `rollback`, or the proxy's own `expire`."""

    ident: bytes
    what: str
    hop_from: int | None


def entry_of(fate: Fate) -> Entry | None:
    """The entry that the schedule keeps of a record, if any."""
    if isinstance(fate, Known):
        return fate.entry
    return fate if type(fate) is tuple else None  # type: ignore[return-value]


Fate: TypeAlias = Entry | Rejection | Known | Stray | Cancel | Prepare | Decision

WithId: TypeAlias = tuple[Entry, bytes]
"""The usual `Known`, a producer's own that does not roll: entry and id. Its length tells it from an
`Entry`, a plain tuple too; a tuple of a class of its own takes five times as long to make."""

Read: TypeAlias = Fate | WithId


class Parted(NamedTuple):
    """Records that simply wait, in their order: all `entries`, and of those with ids, `named`, the
    `idents`."""

    entries: Sequence[Entry]
    named: Sequence[Entry]
    idents: Sequence[bytes]


def parted(read: Sequence[Entry | WithId]) -> Parted:
    """What simply waits, with the ids taken apart from the entries."""
    with_ids = [fate for fate in read if len(fate) == 2]
    if not with_ids:
        return Parted(cast("Sequence[Entry]", read), (), ())
    named, idents = zip(*with_ids, strict=True)
    if len(named) == len(read):
        return Parted(named, named, idents)
    return Parted([fate[0] if len(fate) == 2 else fate for fate in read], named, idents)


def unfolded(read: Read) -> Fate:
    """The fate that was read, in the one form that all but the usual path of a record work with."""
    if type(read) is tuple and len(read) == 2:
        entry, ident = read
        return Known(entry, ident, None, entry[0], rolls=False)
    return cast(Fate, read)
