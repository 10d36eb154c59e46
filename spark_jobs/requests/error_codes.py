"""The codes of `timer-error` for what is wrong with a record itself, and which of several wins.

A check is a column expression: the code, or null. Of several the first that has one counts.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

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
    RECORD_UNREADABLE,
    HEADER_UNREADABLE,
    HEADER_UNKNOWN,
    HEADER_UNSUPPORTED,
    TARGET_MISSING,
    TARGET_ILLEGAL,
    TARGET_REFUSED,
    TIME_UNREADABLE,
    LEVEL_UNKNOWN,
    DELAY_TOO_LONG,
    TIME_PAST,
    ID_BAD,
    RECALL_BAD,
    RETRY_BAD,
    TRANSACTION_BAD,
    HOP_BAD,
    PURGE_BAD,
)
"""Codes that depend on the record alone: a record that is not to be refused cannot have them."""

TRANSIENT: Final = ("target-unknown", "not-authorised", "partition-unavailable")
"""Codes of what is tried again and again before it is a dead letter."""

OF_OLDER_VERSIONS: Final = "too-many"
"""Given to records that found no room to wait: now reading is held instead."""
BELIEVED: Final = (
    *TRANSIENT,
    PARTITION_BAD,
    "too-large",
    "publish-failed",
    "body-gone",
    OF_OLDER_VERSIONS,
    DEFECT,
)
"""Codes of what depends on the broker: no topic shows that it was so."""
OVERDUE: Final = "overdue"
DECIDED_AT_ITS_DUE: Final = (*TRANSIENT, "publish-failed", "body-gone", OVERDUE)
"""Codes of what waited until it was due: nothing else had ended it by then."""
TRANSACTION_EXPIRED: Final = "transaction-expired"
"""Of a half message whose outcome is `expired`, and of nothing else."""
OF_DEAD_LETTERED: Final = (*DECIDED_WHEN_READ, *BELIEVED, OVERDUE)
"""Codes of what has the outcome `dead-lettered`."""


def refused(code: str, condition: Column) -> Column:
    """The code where the condition holds."""
    return f.when(condition, f.lit(code))


def first_of(*codes: Column) -> Column:
    """The code of the first check that refuses; later ones are not evaluated then."""
    return f.coalesce(*codes)
