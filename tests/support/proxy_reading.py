"""What the proxy itself takes a record for, in the words of the audit's frame ASKED."""

from __future__ import annotations

from typing import Any

from proxy.records.delivery import delivery_of
from proxy.records.rejection import Rejection
from proxy.requests.parsed import Cancel, Decision, Fate, Known, Prepare, Stray
from storage.store import Entry

NOTHING: dict[str, Any] = dict.fromkeys(
    (
        *("kind", "code", "ident", "target", "target_partition", "target_key"),
        *("due_ms", "wanted_ms", "fires_ms", "hop_from", "expires_ms"),
    )
)


def told(fate: Fate) -> dict[str, Any]:
    """Columns of ASKED by name."""
    return {**NOTHING, **_told(fate)}


def _told(fate: Fate) -> dict[str, Any]:
    match fate:
        case Rejection():
            return {"kind": "refused", "code": fate.code}
        case Stray():
            return {"kind": "refused", "code": fate.rejection.code, "hop_from": fate.hop_from}
        case Cancel():
            return {"kind": "cancel", "ident": fate.ident}
        case Decision():
            return {"kind": fate.what, "ident": fate.ident, "hop_from": fate.hop_from}
        case Known():
            entry = _entry(fate.entry)
            return {**entry, "kind": "record", "ident": fate.ident, "hop_from": fate.hop_from}
        case Prepare():
            expires_ms = fate.first_check_ms + fate.max_checks * fate.interval_ms
            entry = _entry(fate.entry)
            return {**entry, "kind": "prepare", "ident": fate.ident, "expires_ms": expires_ms}
        case _:
            return {**_entry(fate), "kind": "record"}


def _entry(entry: Entry) -> dict[str, Any]:
    delivery = delivery_of(entry)
    return {
        "target": delivery.target,
        "target_partition": None if delivery.partition < 0 else delivery.partition,
        "target_key": delivery.key,
        "due_ms": delivery.due_ms,
        "wanted_ms": delivery.wanted_ms,
        "fires_ms": delivery.fires_ms,
    }
