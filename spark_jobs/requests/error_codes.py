"""Codes of `timer-error`, and SQL that chooses the first one that applies."""

import re
from typing import Final

HOP_BAD: Final = "hop-bad"
DEFECT: Final = "defect"
DECIDED_WHEN_READ: Final = (
    *("record-unreadable", "header-unreadable", "header-unknown", "header-unsupported"),
    *("target-missing", "target-illegal", "target-refused", "time-unreadable", "level-unknown"),
    *("delay-too-long", "time-past", "id-bad", "recall-bad", "retry-bad", "transaction-bad"),
    *(HOP_BAD, "purge-bad"),
)
"""Codes that depend on record and policy alone. An accepted record cannot have such a code."""
TRANSIENT: Final = ("target-unknown", "not-authorised", "partition-unavailable")
"""Codes of dead letters after repeated publish attempts."""
BELIEVED: Final = (*TRANSIENT, "partition-bad", "too-large", "publish-failed", "body-gone", DEFECT)
"""Codes that depend on the broker or the proxy. No topic shows whether such a code is right."""
OVERDUE: Final = "overdue"
DECIDED_AT_ITS_DUE: Final = (*TRANSIENT, "publish-failed", "body-gone", OVERDUE)
"""A record with such a code was pending until its due: nothing had ended it earlier."""
TRANSACTION_EXPIRED: Final = "transaction-expired"
"""Only half messages with the outcome `expired` have this code."""
OF_DEAD_LETTERED: Final = (*DECIDED_WHEN_READ, *BELIEVED, OVERDUE)
"""Codes in dead letters of records with the outcome `dead-lettered`."""


def codes_in(table: str) -> str:
    """Parse lines `- code: condition`. Return SQL of the first code whose condition holds."""
    lines = re.split(r"^- ", table, flags=re.MULTILINE)[1:]
    return first_code(*(tuple(line.split(": ", 1)) for line in lines))


def first_code(*checks: tuple[str, ...]) -> str:
    """Return SQL of the first code whose condition holds; else null."""
    branches = (f"WHEN {holds} THEN '{code}'" for code, holds in checks)
    return f"CASE {' '.join(branches)} END"
