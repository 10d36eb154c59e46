"""Spring for Apache Kafka, non-blocking retries: when a failed record is to be tried again.

Source: spring-projects/spring-kafka, retrytopic/DeadLetterPublishingRecovererFactory.java
(`addHeaders` writes the due time as BigInteger.toByteArray and the attempts as a four-byte number,
both big-endian; `getAttempts` still reads one byte) and retrytopic/RetryTopicHeaders.java (names).
"""

from typing import Final

from proxy.protocol.aliases.foreign import (
    LATEST_MS,
    Ask,
    ForeignRecord,
    Refused,
    digits,
)
from proxy.protocol.headers import ATTEMPT, DELIVER_AT, RETRY_GROUP

BACKOFF_TIMESTAMP: Final = "retry_topic-backoff-timestamp"
ATTEMPTS: Final = "retry_topic-attempts"
HEADERS: Final = frozenset({BACKOFF_TIMESTAMP, ATTEMPTS})
LONG_BYTES: Final = 8
FIRST_RETRY: Final = 2
"""Spring counts deliveries and writes the number of the next: 2 after the first failure."""


def read(record: ForeignRecord) -> Ask:
    """Spring's due time; the number of failures only for a record that names its retry group."""
    return _due(record) | _attempt(record)


def _due(record: ForeignRecord) -> Ask:
    if not record.needs_time or BACKOFF_TIMESTAMP not in record.headers:
        return {}
    raw = record.headers[BACKOFF_TIMESTAMP] or b""
    due_ms = int.from_bytes(raw[: LONG_BYTES + 1], "big", signed=True)
    if not 1 <= len(raw) <= LONG_BYTES or due_ms > LATEST_MS:
        raise Refused(
            "time-unreadable",
            f"{BACKOFF_TIMESTAMP} is {_in_hex(raw)}: it must be epoch milliseconds as Spring "
            "writes them, 1 to 8 bytes, the highest first",
        )
    return {DELIVER_AT: (digits(max(0, due_ms)), BACKOFF_TIMESTAMP)}


def _attempt(record: ForeignRecord) -> Ask:
    if RETRY_GROUP not in record.headers or ATTEMPT in record.headers:
        return {}
    if ATTEMPTS not in record.headers:
        return {}
    raw = record.headers[ATTEMPTS] or b""
    if len(raw) not in {1, 4} or (len(raw) == 4 and raw[0] > 127):
        raise Refused(
            "header-unreadable",
            f"{ATTEMPTS} is {_in_hex(raw)}: it must be a number of four bytes (older versions of "
            "Spring: one), the highest first",
        )
    failures_before = max(0, int.from_bytes(raw, "big") - FIRST_RETRY)
    return {ATTEMPT: (digits(failures_before), ATTEMPTS)}


def _in_hex(raw: bytes) -> str:
    return f"0x{raw[:16].hex()}{'...' if len(raw) > 16 else ''}" if raw else "empty"
