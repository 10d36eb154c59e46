"""What each verdict means, in words; the order in which people are shown them."""

from __future__ import annotations

from typing import Final

HELD: Final = {
    "delivered": "arrived in its target once, not early, byte for byte",
    "cancelled": "taken back by a cancel before it was due",
    "replaced": "taken back by a newer record with its id",
    "dead_lettered": "lies in the dead letters, with the reason",
    "rolled": "rewritten before retention could delete it; its successor goes on",
    "requeued": "tried again later, since its target did not take it; its successor goes on",
    "rolled_back": "a half message whose producer rolled back",
    "expired": "a half message that nobody decided",
    "applied": "a control record that found what it names",
    "missed": "a control record that found nothing",
    "pending": "not yet due, or not yet read by the proxy",
    "unverifiable": "cannot be judged: retention has deleted what would show it",
}
BROKEN: Final = {
    "missing": "should have ended by what the proxy has committed, and has no end",
    "duplicated": "has more than one end",
    "early": "was delivered before its due",
    "altered": "arrived otherwise than it was written: key, value, headers, target or stamps",
    "orphaned": "names an ingress record that never was, or that is not there",
    "contradicted": "ended otherwise than the log of the ingress says",
}
"""The violations: one of them, and the guarantee did not hold."""
