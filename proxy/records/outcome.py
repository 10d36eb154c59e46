"""How a record ends other than by delivery, and the names of all outcomes."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from proxy.records.ingress_partition import IngressPartition

CANCELLED: Final = "cancelled"
REPLACED: Final = "replaced"
DEAD_LETTERED: Final = "dead-lettered"
ROLLED: Final = "rolled"
REQUEUED: Final = "requeued"
ROLLED_BACK: Final = "rolled-back"
EXPIRED: Final = "expired"
APPLIED: Final = "applied"
MISSED: Final = "missed"

OUTCOMES: Final = (
    CANCELLED,
    REPLACED,
    DEAD_LETTERED,
    ROLLED,
    REQUEUED,
    ROLLED_BACK,
    EXPIRED,
    APPLIED,
    MISSED,
)
"""Every name that an outcome record can carry (docs/guide.md#outcomes)."""


class Outcome(NamedTuple):
    """How the ingress record at `offset` ended, other than by delivery. what: one of `OUTCOMES`.

    `next_offset`: of the record that goes on in its place, where that is known.
    """

    offset: int
    what: str
    due_ms: int | None
    ident: bytes | None
    detail: str = ""
    next_offset: int | None = None

    def to_json(self, ingress: IngressPartition) -> bytes:
        """The value of the outcome record; its key is the origin."""
        fields = {
            "origin": ingress.origin(self.offset),
            "outcome": self.what,
            "due": self.due_ms,
            "id": None if self.ident is None else self.ident.decode("utf-8", "backslashreplace"),
            "detail": self.detail,
        }
        if self.next_offset is not None:
            fields["next_origin"] = ingress.origin(self.next_offset)
        return json.dumps(fields, separators=(",", ":")).encode()
