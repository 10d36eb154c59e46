"""The names of the verdicts, their meanings, and which are violations (docs/audit.md)."""

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
    "cancelled": "taken back by a cancel, recall or purge before it was due",
    "replaced": "taken back by a newer record with its id, or moved to another time",
    DEAD_LETTERED: "lies in the dead letters, with the reason",
    "rolled": "rewritten before retention could delete it; its successor goes on",
    "requeued": "tried again later, since its target did not take it; its successor goes on",
    "rolled_back": "a half message whose producer rolled back",
    "expired": "a half message that nobody decided, or dropped by release.overdue",
    "applied": "a control record that found what it names",
    "missed": "a control record that found nothing, or a move that came too late",
    PENDING: "not yet due, or not yet read by the proxy",
    UNVERIFIABLE: "cannot be judged: retention has deleted what would show it",
}
VIOLATIONS: Final = {
    MISSING: "should have ended by what the proxy has committed, and has no end",
    "duplicated": "has more than one end",
    "early": "was delivered before its due",
    "altered": "arrived with another topic, partition, key, value, header or stamp than it was to",
    ORPHANED: "names an ingress record that never was, or that is not there",
    CONTRADICTED: "ended otherwise than the log of the ingress says",
    LATE: "arrived later than was asked for with --max-lateness",
    OVERDUE: "has been due for longer than was asked for with --max-lateness, and has not ended",
}
"""Each breaks the guarantee."""
MEANINGS: Final = {**SOUND, **VIOLATIONS}
