"""Codes of `timer-error`, and SQL of which of several counts."""

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
"""These depend on the record alone: a record that is accepted cannot have them."""
TRANSIENT: Final = ("target-unknown", "not-authorised", "partition-unavailable")
"""Publishing is tried again and again before these make a dead letter."""
OF_OLDER_VERSIONS: Final = "too-many"
"""Older versions gave it to records that found no room to wait. Now reading is held instead."""
BELIEVED: Final = (
    *TRANSIENT,
    *("partition-bad", "too-large", "publish-failed", "body-gone", OF_OLDER_VERSIONS, DEFECT),
)
"""These depend on the broker: no topic shows whether they are right."""
OVERDUE: Final = "overdue"
DECIDED_AT_ITS_DUE: Final = (*TRANSIENT, "publish-failed", "body-gone", OVERDUE)
"""A record with one of these waited until its due: nothing else had ended it by then."""
TRANSACTION_EXPIRED: Final = "transaction-expired"
"""Only a half message with the outcome `expired` has it."""
OF_DEAD_LETTERED: Final = (*DECIDED_WHEN_READ, *BELIEVED, OVERDUE)
"""Codes of records with the outcome `dead-lettered`."""


def codes_in(table: str) -> str:
    """Read lines `- code: condition`. Return SQL of the code of the first one that holds."""
    lines = re.split(r"^- ", table, flags=re.MULTILINE)[1:]
    return first_code(*(tuple(line.split(": ", 1)) for line in lines))


def first_code(*checks: tuple[str, ...]) -> str:
    """Return SQL of the code of the first condition that holds; else null."""
    branches = (f"WHEN {holds} THEN '{code}'" for code, holds in checks)
    return f"CASE {' '.join(branches)} END"
