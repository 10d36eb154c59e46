"""Records that are sent with delays and judged when they arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from confluent_kafka.cimpl import NewTopic

from tests.support.quiet_clients import admin_client
from tests.support.records import Incoming, Outgoing, read_to_end, write

INGRESS: Final = "timer.ingress"
TARGET: Final = "orders"
PARTITIONS: Final = 4
RECORDS: Final = 40
WITHIN_S: Final = 360


class Deliveries:
    """Records for one target, which `__init__` creates. The broker sets the target's timestamps, so
    that lateness depends on one clock."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.sent = 0
        self._judged = 0
        wanted = NewTopic(TARGET, 1, 1, config={"message.timestamp.type": "LogAppendTime"})
        admin = admin_client(bootstrap)
        admin.create_topics([wanted])[TARGET].result(WITHIN_S)

    def send(self, *delays: str) -> None:
        """Send a record for each delay."""
        records = [
            Outgoing(b"%d" % number, b"", _headers(delay), number % PARTITIONS)
            for number, delay in enumerate(delays, self.sent)
        ]
        write(self._bootstrap, INGRESS, records)
        self.sent += len(records)

    def judge(self) -> Sequence[int]:
        """Check that every sent record has arrived once, and none early. Return the lateness in ms
        of the records that were not judged before."""
        arrived = read_to_end(self._bootstrap, TARGET, self.sent, WITHIN_S)
        counts = Counter(record.key for record in arrived)
        assert counts == {b"%d" % n: 1 for n in range(self.sent)}, f"not once each: {counts}"
        late = [record.timestamp_ms - _due_ms(record) for record in arrived[self._judged :]]
        assert min(late) >= 0, f"{-min(late)} ms early"
        self._judged = self.sent
        return late


def _headers(delay: str) -> list[tuple[str, bytes]]:
    return [("timer-topic", TARGET.encode()), ("timer-delay", delay.encode())]


def _due_ms(record: Incoming) -> int:
    due = record.header("timer-due")
    assert due is not None, "a record arrived without timer-due"
    return int(due)
