"""The names of the verdicts, their descriptions, and which are violations (docs/audit.md)."""

from typing import Final

DELIVERED: Final = "delivered"
DEAD_LETTERED: Final = "dead_lettered"
PENDING: Final = "pending"
UNVERIFIABLE: Final = "unverifiable"
MISSING: Final = "missing"
ORPHANED: Final = "orphaned"
CONTRADICTED: Final = "contradicted"
LATE: Final = "late"
OVERDUE: Final = "overdue"
ARRIVED: Final = (DELIVERED, LATE)
"""The record was delivered correctly, perhaps too late."""
NOT_DONE: Final = (PENDING, OVERDUE)
"""The record has not ended. A later audit judges it again."""

SOUND: Final = {
    DELIVERED: "arrived in its target once, not early, byte for byte",
    "cancelled": "ended by a cancel, recall or purge before it was due",
    "replaced": "replaced by a newer record with its id, or moved to another time",
    DEAD_LETTERED: "is in the dead letters, with the reason",
    "rolled": "rewritten before retention could delete it; its successor continues it",
    "requeued": "written again for a later attempt or time; its successor continues it",
    "rolled_back": "a half message whose producer rolled back",
    "expired": "a half message that nobody decided, or a record dropped by release.overdue",
    "applied": "a control record that found its record",
    "missed": "a control record that found nothing, or a move that came too late",
    PENDING: "not yet due, or not yet read by the proxy",
    UNVERIFIABLE: "cannot be judged: the records that would show it are deleted or unknown",
}
VIOLATIONS: Final = {
    MISSING: "has no end, although it must have ended according to the committed offsets",
    "duplicated": "has more than one end",
    "early": "was delivered before its due",
    "altered": "arrived with a wrong topic, partition, key, value, header or stamp",
    ORPHANED: "names an ingress record that does not exist",
    CONTRADICTED: "contradicts the ingress log or another end",
    LATE: "arrived later than --max-lateness allows",
    OVERDUE: "has not ended, and is due for longer than --max-lateness allows",
}
"""Verdicts that break the guarantee."""
DESCRIPTIONS: Final = {**SOUND, **VIOLATIONS}
