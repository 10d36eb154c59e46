"""Why a record goes to the dead letters."""

from dataclasses import dataclass
from pathlib import PurePath
from traceback import extract_tb
from typing import Final


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a record goes to the dead letters: a code of `REASONS` and a sentence."""

    code: str
    detail: str


RECORD_UNREADABLE: Final = "record-unreadable"
REASONS: Final = {
    RECORD_UNREADABLE: "the client library cannot read the record's batch, and an operator has "
    "skipped it",
    "header-unreadable": "the record's headers cannot be read, or those of another scheduler "
    "contradict each other",
    "header-unknown": "a header begins with timer- but is none of the protocol's",
    "header-unsupported": "a request that is not served: of another scheduler (a recurring "
    "schedule), or one that the setting requests.serve leaves out",
    "target-missing": "no timer-topic header",
    "target-illegal": "timer-topic, timer-check-topic or a retry topic is no legal topic name",
    "target-refused": "the target is the proxy's own, internal, reserved, denied or not allowed, "
    "or belongs to a consumer group that is not served",
    "time-unreadable": "a header with a time cannot be read, or no timestamp to add to",
    "level-unknown": "timer-level is not a whole number",
    "delay-too-long": "the due time lies beyond max_delay",
    "time-past": "the due time lies further before the record's timestamp than max_past",
    "id-bad": "timer-id or timer-cancel is empty or too long, or an id is missing where one is due",
    "recall-bad": "timer-recall is no origin of an earlier record in this partition of the ingress",
    "retry-bad": "timer-attempt is not a whole number, or comes without timer-retry-group",
    "transaction-bad": "timer-transaction is none of prepare, commit and rollback",
    "hop-bad": "a timer-hop- header, which the proxy alone writes, cannot be read",
    "purge-bad": "a timer-purge header, which the proxy alone writes, and it did not",
    "partition-bad": "timer-partition is not a number, or the target has no such partition",
    "target-unknown": "the target topic does not exist on the broker, after all retries",
    "partition-unavailable": "the target partition has no leader, or fewer replicas in sync than "
    "min.insync.replicas, after all retries",
    "too-large": "the target topic does not take records of this size",
    "not-authorised": "the proxy may not write to the target topic, after all retries",
    "publish-failed": "the broker refused the record for another reason; the detail says which",
    "body-gone": "the ingress had deleted the record before it could be read back",
    "transaction-expired": "a half message that nobody committed or rolled back after all checks",
    "overdue": "the setting release.overdue has records this late set aside",
    "defect": "the proxy itself failed at this record, in a way that nobody foresaw",
}
"""Every code that `timer-error` can carry. The eight before the last, and a partition beyond the
target's, are found when the record fires, a defect at any time, the others when it is ingested."""


def unforeseen(error: Exception) -> Rejection:
    """Why a record ends at which the proxy itself failed so; raises what is no fault of the record.

    A later version that reads such a record otherwise needs another `policy.PROTOCOL`: a replay
    would not come to the same end (docs/exactly-once.md, rule 3).
    """
    if isinstance(error, MemoryError):
        raise error
    at = extract_tb(error.__traceback__)[-1]
    return Rejection(
        "defect",
        "the proxy failed at this record, which is a defect of the proxy: please report it with "
        f"{type(error).__name__} in {PurePath(at.filename).name}:{at.lineno}: {error}"[:500],
    )
