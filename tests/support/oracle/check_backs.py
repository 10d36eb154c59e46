"""The judge of check-backs: each question comes once, in its time, about a message there is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.support.oracle.asked import Rules, asked_key, users
from tests.support.oracle.committed_reader import Placed
from tests.support.oracle.ends import Ends
from tests.support.records import Incoming

Question = tuple[str, bytes | None, bytes | None, bytes | None, str]
"""(topic, id, key, value, the user's headers)."""

SAID = ["timer-transaction", "timer-id", "timer-check"]


def wrong_check_backs(ends: Ends, rules: Rules) -> Iterator[str]:
    """What is wrong with the questions that producers were asked."""
    halves: dict[Question, list[tuple[str, Incoming]]] = defaultdict(list)
    for place, record in ends.ingress.items():
        if record.header("timer-transaction") == b"prepare":
            topic = (record.header("timer-check-topic") or b"").decode()
            halves[_question(topic, record, asked_key(record))].append((place, record))
    asked: Counter[tuple[Question, int]] = Counter()
    for placed in ends.checks:
        check = int(placed.record.header("timer-check") or b"0")
        question = _question(placed.topic, placed.record, placed.record.key)
        asked[question, check] += 1
        yield from _wrong(placed, check, [half for _, half in halves[question]], rules)
    for (question, check), times in asked.items():
        if times > len(halves[question]):
            yield f"check {check} of {[place for place, _ in halves[question]]} came {times} times"
    yield from _expired_early(ends, rules)


def _wrong(placed: Placed, check: int, halves: list[Incoming], rules: Rules) -> Iterator[str]:
    said = [name for name, _ in placed.record.headers if name.startswith("timer-")]
    if said != SAID or placed.record.header("timer-transaction") != b"check":
        yield f"{placed.place} says {said}: a check-back says {SAID}"
    if not halves:
        yield f"{placed.place} asks about a half message that nobody prepared"
    elif not 1 <= check <= rules.max_checks:
        yield f"{placed.place} is check {check} of {rules.max_checks}"
    elif placed.record.timestamp_ms < min(rules.check_ms(half, check) for half in halves):
        yield f"{placed.place} asks too early for check {check}"


def _expired_early(ends: Ends, rules: Rules) -> Iterator[str]:
    """By the proxy's own request: another machine, its clock behind, may serve that."""
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
    return topic, record.header("timer-id"), key, record.value, repr(users(record.headers))
