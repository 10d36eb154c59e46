"""The proxy's own reading of a record, as columns of the audit's frame PARSED."""

from __future__ import annotations

from typing import Any

from proxy.protocol.body import delivery_of
from proxy.protocol.outcomes import Rejection
from proxy.protocol.parsed import (
    Cancel,
    Decision,
    ParsedRecord,
    Prepare,
    Purge,
    Recall,
    RejectedHop,
    Scheduled,
)
from storage.store import Entry

NOTHING: dict[str, Any] = dict.fromkeys(
    (
        *("kind", "code", "ident", "target", "target_partition", "target_key"),
        *("due_ms", "wanted_ms", "fires_ms", "hop_from", "expires_ms", "recalled", "first_offset"),
        *("needs_proof", "known_key", "known_ident"),
        *("purge_from_ms", "purge_to_ms", "moved_fires_ms", "moved_due_ms"),
    )
)


def told(parsed: ParsedRecord) -> dict[str, Any]:
    return {**NOTHING, **_told(parsed)}


def _told(parsed: ParsedRecord) -> dict[str, Any]:
    match parsed:
        case Rejection():
            return {"kind": "refused", "code": parsed.code}
        case RejectedHop():
            fires_ms, due_ms = parsed.moved or (None, None)
            return {
                "moved_fires_ms": fires_ms,
                "moved_due_ms": due_ms,
                "kind": "refused",
                "code": parsed.rejection.code,
                "hop_from": parsed.hop_from,
                "first_offset": parsed.first,
            }
        case Cancel():
            return {"kind": "cancel", "ident": parsed.ident}
        case Recall():
            key, ident = parsed.known or (None, None)
            needs_proof = None if parsed.known is None else True
            known = {"needs_proof": needs_proof, "known_key": key, "known_ident": ident}
            return {"kind": "recall", "recalled": parsed.offset, **known}
        case Purge(targets, from_ms, to_ms):
            return {
                "kind": "purge",
                "target": targets,
                "purge_from_ms": from_ms,
                "purge_to_ms": to_ms,
            }
        case Decision():
            return {"kind": parsed.what, "ident": parsed.ident, "hop_from": parsed.hop_from}
        case Scheduled():
            entry = _entry(parsed.entry)
            fires_ms, due_ms = parsed.moved or (None, None)
            return {
                **entry,
                "moved_fires_ms": fires_ms,
                "moved_due_ms": due_ms,
                "kind": "record",
                "ident": parsed.ident,
                "hop_from": parsed.hop_from,
                "first_offset": parsed.first,
            }
        case Prepare():
            expires_ms = parsed.first_check_ms + parsed.max_checks * parsed.interval_ms
            entry = _entry(parsed.entry)
            return {**entry, "kind": "prepare", "ident": parsed.ident, "expires_ms": expires_ms}


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
