"""A target with a low limit for batches, which the proxy may not describe."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from tests.support.installation.installation import Installation
from tests.support.installation.rights import allow
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

LIMIT_BYTES = 2_000
RECORDS = 1_000
LARGE_EVERY = 10
LATE_MS = 60_000
"""One abort for each record that is too large took minutes, and then the session."""


def _record(topic: str, due_ms: int, size_bytes: int) -> Outgoing:
    asked = [("timer-topic", topic.encode()), ("timer-deliver-at", str(due_ms).encode())]
    return Outgoing(b"k", bytes(size_bytes), asked)


def test_records_too_large_for_a_target_that_may_not_be_described_delay_no_others(
    asking_installation: Installation,
) -> None:
    config = {"max.message.bytes": str(LIMIT_BYTES)}
    small, good = (
        asking_installation.target("small", config=config),
        asking_installation.target("good"),
    )
    for operation in (AclOperation.WRITE, AclOperation.READ):
        allow(asking_installation.bootstrap, small, operation)
    proxy = asking_installation.proxy()
    proxy.start_ready()
    due_ms = int(time.time() * 1_000) + 3_000
    sizes = [300 + n % 7 if n % LARGE_EVERY else LIMIT_BYTES + n for n in range(RECORDS)]
    records = [_record(small, due_ms + n, size) for n, size in enumerate(sizes)]
    records += [_record(good, due_ms + 50 * n, 10) for n in range(40)]
    asking_installation.send(records)
    ends = asking_installation.judge()
    assert ends.counts == {
        "delivered": len(records) - RECORDS // LARGE_EVERY,
        "dead-lettered": RECORDS // LARGE_EVERY,
    }
    letters = [letter for found in ends.dead_letters.values() for letter in found]
    assert {letter.header("timer-error") for letter in letters} == {b"too-large"}
    assert max(ends.lateness_ms) < LATE_MS
