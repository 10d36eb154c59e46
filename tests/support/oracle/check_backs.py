"""Judge of check-backs: each comes once, in time, and for an existing half message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from tests.support.oracle.asked import Rules, asked_key, users
from tests.support.oracle.committed_reader import Placed
from tests.support.oracle.ends import Ends
from tests.support.records import Incoming

Question = bytes
"""Digest of a check-back: topic, id, key, value and the user's headers."""

SAID = ["timer-transaction", "timer-id", "timer-check"]


class Halves(NamedTuple):
    """Half messages with equal check-backs: number, one place, and the time of the first check."""

    times: int
    place: str
    first_ms: int


class CheckBacks:
    """Judge that reads every ingress record, then every check-back, in little memory."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._halves: dict[Question, Halves] = {}
        self._asked: Counter[tuple[Question, int]] = Counter()

    def ingress(self, placed: Placed) -> Placed:
        if placed.record.header("timer-transaction") == b"prepare":
            self._prepared(placed.place, placed.record)
        return placed

    def _prepared(self, place: str, record: Incoming) -> None:
        topic = (record.header("timer-check-topic") or b"").decode("utf-8", "backslashreplace")
        question = _question(topic, record, asked_key(record))
        first_ms = self._rules.check_ms(record, 1)
        before = self._halves.get(question, Halves(0, place, first_ms))
        self._halves[question] = Halves(
            before.times + 1, before.place, min(before.first_ms, first_ms)
        )

    def wrong(self, checks: Iterable[Placed]) -> Iterator[str]:
        for placed in checks:
            check = int(placed.record.header("timer-check") or b"0")
            question = _question(placed.topic, placed.record, placed.record.key)
            self._asked[question, check] += 1
            yield from self._wrong(placed, check, self._halves.get(question))
        for (question, check), times in self._asked.items():
            halves = self._halves.get(question)
            if halves is not None and times > halves.times:
                yield f"check {check} of {halves.place} came {times} times"

    def _wrong(self, placed: Placed, check: int, halves: Halves | None) -> Iterator[str]:
        said = [name for name, _ in placed.record.headers if name.startswith("timer-")]
        if said != SAID or placed.record.header("timer-transaction") != b"check":
            yield f"{placed.place} says {said}: a check-back says {SAID}"
        if halves is None:
            yield f"{placed.place} asks about a half message that nobody prepared"
        elif not 1 <= check <= self._rules.max_checks:
            yield f"{placed.place} is check {check} of {self._rules.max_checks}"
        elif placed.record.timestamp_ms < self._due_ms(halves, check):
            yield f"{placed.place} asks too early for check {check}"

    def _due_ms(self, halves: Halves, check: int) -> int:
        return halves.first_ms + (check - 1) * self._rules.check_interval_ms


def expired_early(ends: Ends, rules: Rules) -> Iterator[str]:
    """Yield half messages that expired early. Their expiry is judged by the time of the proxy's
    `expire` record. The outcome may have an earlier time, if a machine with a late clock reads that
    record."""
    for place, record in ends.ingress.items():
        if record.header("timer-transaction") != b"expire" or place in ends.dead_letters:
            continue
        half = f"{place.rpartition('/')[0]}/{int(record.header('timer-hop-from') or b'-1')}"
        prepare = ends.ingress.get(half)
        if prepare is None or prepare.header("timer-transaction") != b"prepare":
            yield f"{place} ends {half}, which is no half message"
        elif record.timestamp_ms < rules.check_ms(prepare, rules.max_checks + 1):
            yield f"{place} ends {half} before its time"


def _question(topic: str, record: Incoming, key: bytes | None) -> Question:
    said = (topic, record.header("timer-id"), key, record.value, users(record.headers))
    return blake2b(repr(said).encode(), digest_size=16).digest()
