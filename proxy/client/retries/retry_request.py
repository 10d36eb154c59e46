"""The request that brings back a record which a consumer could not handle.

Its headers: docs/guide.md#retries-of-consumers.
"""

from typing import Final

from proxy.client.request import Request, WireHeaders
from proxy.client.retries.received import (
    ATTEMPT,
    EXCEPTION,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TOPIC,
    STORY,
    Received,
)
from proxy.records.headers import ATTEMPT as TIMER_ATTEMPT
from proxy.records.headers import PREFIX, RETRY_GROUP, TOPIC

LONGEST_EXCEPTION: Final = 1_000


class DeadLetter(Exception):
    """Raised by a handler: this record will never be handled, to the dead letters with it at once.

    The reason ends up in the header `retry-exception`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def retry_request(
    record: Received, error: Exception, group: str, max_attempts: int, target: str | None = None
) -> Request:
    """The ingress record that brings a failed record again, or ends it in `dlq.<group>`.

    `timer-attempt` is the number of failures before this one: the first asks for level 3.
    `target` is the topic where retries go, if not `retry.<group>`.
    """
    is_over = isinstance(error, DeadLetter)
    asked: WireHeaders = [
        (RETRY_GROUP, group.encode()),
        (TIMER_ATTEMPT, _text(max_attempts if is_over else record.attempt)),
    ]
    if target is not None and not is_over and record.attempt < max_attempts:
        asked.append((TOPIC, target.encode()))
    own = [
        (name, value)
        for name, value in record.headers
        if not name.startswith(PREFIX) and name not in STORY
    ]
    return Request(record.key, record.value, asked + own + _story(record, error))


def _story(record: Received, error: Exception) -> WireHeaders:
    topic, partition, offset = record.original
    what = error.reason if isinstance(error, DeadLetter) else f"{type(error).__name__}: {error}"
    return [
        (ORIGINAL_TOPIC, topic.encode()),
        (ORIGINAL_PARTITION, _text(partition)),
        (ORIGINAL_OFFSET, _text(offset)),
        (ATTEMPT, _text(record.attempt + 1)),
        (EXCEPTION, what[:LONGEST_EXCEPTION].encode("utf-8", "backslashreplace")),
    ]


def _text(number: int) -> bytes:
    return str(number).encode()
