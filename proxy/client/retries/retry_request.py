"""The request that brings back a record which a consumer could not handle.

Its headers: docs/guide.md#retries-of-consumers.
"""

from typing import Final

from proxy.client.request import Request, WireHeaders
from proxy.client.retries.handling.failure import Failure
from proxy.client.retries.received import (
    ATTEMPT,
    EXCEPTION,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TOPIC,
    STORY,
    Received,
)
from proxy.client.retries.signer import SIGNATURE, Signer
from proxy.protocol.headers import ATTEMPT as TIMER_ATTEMPT
from proxy.protocol.headers import DELAY, PREFIX, RETRY_GROUP, TOPIC

LONGEST_EXCEPTION: Final = 1_000


def retry_request(
    record: Received,
    failure: Failure,
    group: str,
    max_attempts: int,
    target: str | None = None,
    signer: Signer | None = None,
) -> Request:
    """The ingress record that brings a failed record again, or ends it in `dlq.<group>`.

    `timer-attempt` is the number of failures before this one: the first asks for level 3, unless
    the failure names a delay. `target` is the topic where retries go, if not `retry.<group>`.
    """
    attempt = max_attempts if failure.is_final else record.attempt
    asked: WireHeaders = [(RETRY_GROUP, group.encode()), (TIMER_ATTEMPT, _text(attempt))]
    if failure.delay is not None:
        asked.append((DELAY, failure.delay.encode()))
    if target is not None and attempt < max_attempts:
        asked.append((TOPIC, target.encode()))
    own = [
        (name, value)
        for name, value in record.headers
        if not name.startswith(PREFIX) and name not in STORY
    ]
    story = _story(record, failure.reason)
    if signer is not None and not failure.is_refused:
        signed = signer.signature(record.original, record.attempt + 1, record.key, record.value)
        story.append((SIGNATURE, signed))
    return Request(record.key, record.value, asked + own + story)


def _story(record: Received, reason: str) -> WireHeaders:
    topic, partition, offset = record.original
    return [
        (ORIGINAL_TOPIC, topic.encode()),
        (ORIGINAL_PARTITION, _text(partition)),
        (ORIGINAL_OFFSET, _text(offset)),
        (ATTEMPT, _text(record.attempt + 1)),
        (EXCEPTION, reason[:LONGEST_EXCEPTION].encode("utf-8", "backslashreplace")),
    ]


def _text(number: int) -> bytes:
    return str(number).encode()
