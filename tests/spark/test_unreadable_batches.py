"""Record batches that no client can decompress: the audit still judges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.kafka.snapshot import Range, Unreadable
from spark_jobs.kafka.sources import NEAR, LargeRecords, _apart
from tests.support.installation.admin_client import call
from tests.support.installation.committing import open_transaction
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.installation.unreadable_batch import (
    BATCH_RECORDS,
    unreadable_at,
    write_unreadable_batch,
)
from tests.support.oracle.auditor import Auditor
from tests.support.records import Outgoing, read_to_end
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
SENT = 5


@pytest.fixture
def installation(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka, tmp_path, partitions=1)
    yield made
    made.close()


def send(installation: Installation, target: str, delay: bytes = b"0") -> None:
    asked = [("timer-topic", target.encode()), ("timer-delay", delay)]
    installation.send([Outgoing(b"key", b"value", asked, 0) for _ in range(SENT)])


def send_in_transaction(installation: Installation, target: str) -> int:
    producer = open_transaction(installation.bootstrap)
    producer.produce(
        installation.ingress, b"value", b"key", 0, headers=[("timer-topic", target.encode())]
    )
    producer.commit_transaction()
    return len(read_to_end(installation.bootstrap, installation.ingress)) + 1


def skip(proxy: ProxyProcess, offset: int) -> None:
    wait_for(lambda: unreadable_at(proxy) == [(0, offset)], WITHIN_S, "the state")
    code, said = call(proxy, "POST", "/skips", {"partition": 0, "offset": offset})
    assert (code, said["end"]) == (200, offset + BATCH_RECORDS)


def test_skipped_batches_are_left_out_and_judged_and_one_that_is_not_skipped_stops_nothing(
    installation: Installation, auditor: Auditor
) -> None:
    """The first batch lies behind a transaction marker, where readers continue."""
    target, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    send(installation, target)
    first = send_in_transaction(installation, target)
    write_unreadable_batch(installation)
    send(installation, target)
    wait_for(lambda: unreadable_at(proxy) == [(0, first)], WITHIN_S, "the state")
    installation.await_ends(SENT + 1)
    found = auditor.audit(installation)
    assert (found.violations, found.verdicts["delivered"]) == (0, SENT + 1)

    skip(proxy, first)
    installation.await_ends(2 * SENT + 1 + BATCH_RECORDS)
    second = first + BATCH_RECORDS + SENT
    write_unreadable_batch(installation)
    send(installation, target)
    skip(proxy, second)
    send(installation, target, b"1h")
    installation.await_ingested()
    wait_for(
        lambda: len(read_to_end(installation.bootstrap, target)) == 3 * SENT + 1,
        WITHIN_S,
        "what is due",
    )
    found = auditor.audit(installation)
    assert not found.violations, found.violations_by
    counts = {name: n for name, n in found.verdicts.items() if n}
    assert counts == {
        "delivered": 3 * SENT + 1,
        "dead_lettered": 2 * BATCH_RECORDS,
        "pending": SENT,
    }
    assert found.exit_code == 0


def pieces(one: Range, unreadable: Unreadable) -> tuple[list[tuple[int, int]], ...]:
    far, near = _apart([one], unreadable, LargeRecords())
    return [(at.start, at.end) for at in far], [(at.start, at.end) for at in near]


def test_ranges_are_read_around_what_was_skipped_and_near_it_batch_by_batch() -> None:
    whole = Range("timer.ingress", 0, 0, 10 * NEAR)
    assert pieces(whole, Unreadable()) == ([(0, 10 * NEAR)], [])
    assert pieces(whole, Unreadable({1: [(5, 6)]}, {2: 7})) == ([(0, 10 * NEAR)], [])
    base = 3 * NEAR
    assert pieces(whole, Unreadable({0: [(5, 8), (base, base + 2)]})) == (
        [(8, base - NEAR), (base + 2, 10 * NEAR)],
        [(0, 5), (base - NEAR, base)],
    )
    assert pieces(whole, Unreadable({}, {0: 10 * NEAR + 3})) == (
        [(0, 9 * NEAR + 3)],
        [(9 * NEAR + 3, 10 * NEAR)],
    )
    assert pieces(Range("timer.ingress", 0, 6, 7), Unreadable({0: [(5, 8)]})) == ([], [])
