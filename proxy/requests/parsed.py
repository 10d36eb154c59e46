"""What one ingress record turns out to ask for: values, and pure functions of record and policy."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from proxy.records.rejection import Rejection
from storage.store import Entry


class Scheduled(NamedTuple):
    """A record to be delivered, by the entry that the schedule keeps of it.

    hop_from: offset of the entry that the proxy rewrote as this record; None: a producer's own.
    due_ms: what it asks for. rolls: the entry fires before that, to be rewritten.
    """

    entry: Entry
    ident: bytes | None
    hop_from: int | None
    due_ms: int
    rolls: bool


class RejectedHop(NamedTuple):
    """A record that the proxy itself wrote to the ingress, and that today's policy rejects."""

    rejection: Rejection
    ident: bytes | None
    hop_from: int


class Cancel(NamedTuple):
    """Whatever pends with this id is not to be delivered."""

    ident: bytes


class Prepare(NamedTuple):
    """A half message. `entry` fires when it has been committed, by its own due.

    Check-back k of `max_checks` is at first_check_ms + (k - 1) * interval_ms; one interval after
    the last it expires. No check_topic: nobody is asked.
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


ParsedRecord: TypeAlias = Scheduled | RejectedHop | Cancel | Prepare | Decision | Rejection
