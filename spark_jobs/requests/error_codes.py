"""Codes of `timer-error`, and SQL of which of several counts."""

from typing import Final

RECORD_UNREADABLE: Final = "record-unreadable"
HEADER_UNREADABLE: Final = "header-unreadable"
HEADER_UNKNOWN: Final = "header-unknown"
HEADER_UNSUPPORTED: Final = "header-unsupported"
TARGET_MISSING: Final = "target-missing"
TARGET_ILLEGAL: Final = "target-illegal"
TARGET_REFUSED: Final = "target-refused"
TIME_UNREADABLE: Final = "time-unreadable"
LEVEL_UNKNOWN: Final = "level-unknown"
DELAY_TOO_LONG: Final = "delay-too-long"
TIME_PAST: Final = "time-past"
ID_BAD: Final = "id-bad"
RECALL_BAD: Final = "recall-bad"
RETRY_BAD: Final = "retry-bad"
TRANSACTION_BAD: Final = "transaction-bad"
HOP_BAD: Final = "hop-bad"
PURGE_BAD: Final = "purge-bad"
PARTITION_BAD: Final = "partition-bad"
DEFECT: Final = "defect"

DECIDED_WHEN_READ: Final = (
    *(RECORD_UNREADABLE, HEADER_UNREADABLE, HEADER_UNKNOWN, HEADER_UNSUPPORTED, TARGET_MISSING),
    *(TARGET_ILLEGAL, TARGET_REFUSED, TIME_UNREADABLE, LEVEL_UNKNOWN, DELAY_TOO_LONG, TIME_PAST),
    *(ID_BAD, RECALL_BAD, RETRY_BAD, TRANSACTION_BAD, HOP_BAD, PURGE_BAD),
)
"""These depend on the record alone: a record that is accepted cannot have them."""
TRANSIENT: Final = ("target-unknown", "not-authorised", "partition-unavailable")
"""Publishing is tried again and again before these make a dead letter."""
OF_OLDER_VERSIONS: Final = "too-many"
"""Older versions gave it to records that found no room to wait. Now reading is held instead."""
BELIEVED: Final = (
    *TRANSIENT,
    *(PARTITION_BAD, "too-large", "publish-failed", "body-gone", OF_OLDER_VERSIONS, DEFECT),
)
"""These depend on the broker: no topic shows whether they are right."""
OVERDUE: Final = "overdue"
DECIDED_AT_ITS_DUE: Final = (*TRANSIENT, "publish-failed", "body-gone", OVERDUE)
"""A record with one of these waited until its due: nothing else had ended it by then."""
TRANSACTION_EXPIRED: Final = "transaction-expired"
"""Only a half message with the outcome `expired` has it."""
OF_DEAD_LETTERED: Final = (*DECIDED_WHEN_READ, *BELIEVED, OVERDUE)
"""Codes of records with the outcome `dead-lettered`."""


def first_code(*checks: tuple[str, str]) -> str:
    """Return SQL of the code of the first condition that holds; else null."""
    branches = (f"WHEN {holds} THEN '{code}'" for code, holds in checks)
    return f"CASE {' '.join(branches)} END"
