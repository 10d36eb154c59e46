"""The records that a half message gives rise to before it is decided (DESIGN 6)."""

from __future__ import annotations

from proxy.records.body import GONE, packer
from proxy.records.entry import Purpose, marked, opened, with_purpose
from proxy.records.headers import CHECK, CHECK_BACK, EXPIRE, HOP_FROM, ID, PREFIX, TRANSACTION
from proxy.scheduling.transaction_buffer import Note
from proxy.scheduling.undecided import Event
from storage.register import Named
from storage.store import Entry


def note_of(origin: str, event: Event) -> Note | None:
    """What is written when the event happens. `origin` is `topic/partition/`."""
    return expiry_request(origin, event) if event.expires else check_back(event)


def check_back(event: Event) -> Note | None:
    """The question to the producer: commit or roll back? None where nobody is to be asked."""
    prepare = event.prepare
    if prepare is None or prepare.check_topic is None:
        return None
    asked = opened((0, event.offset, *prepare.entry[2:]))
    headers = [header for header in asked.headers if header[0][:6] != PREFIX]
    headers += [
        (TRANSACTION, CHECK_BACK),
        (ID, event.ident),
        (CHECK, str(event.check).encode()),
    ]
    return Note(event.offset, prepare.check_topic, -1, asked.key, asked.value, headers)


def expiry_request(origin: str, event: Event) -> Note:
    """What the proxy writes to the ingress to end a half message that nobody has decided.

    It goes through the log so that every replay sees it before or after the producer's commit, as
    it was. `origin` is `topic/partition/`.
    """
    topic, partition, _ = origin.split("/")
    headers: list[tuple[str, bytes | None]] = [
        (TRANSACTION, EXPIRE),
        (ID, event.ident),
        (HOP_FROM, str(event.offset).encode()),
    ]
    return Note(event.offset, topic, int(partition), event.ident, None, headers)


def gone_half(offset: int, half: Named) -> Entry:
    """The entry of a half message that the ingress has deleted: it ends as a dead letter."""
    purpose = Purpose(half.due_ms, half.origin, half.due_ms)
    content = with_purpose((GONE, None, None, []), purpose)
    return half.due_ms, offset, marked(half.target.removeprefix("!")), packer()(content)
