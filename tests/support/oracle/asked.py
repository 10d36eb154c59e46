"""Requests of ingress records, parsed for the judge without the proxy's code."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tests.support.records import Headers, Incoming

UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LENGTH = re.compile(rb"(\d+)(ms|s|m|h|d|)")
TAKING_BACK = ("timer-cancel", "timer-recall", "timer-purge")
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def length_ms(raw: bytes) -> int | None:
    """Return a duration in a plain form (`500ms`, `5m`), None for other forms."""
    found = LENGTH.fullmatch(raw)
    return None if found is None else int(found[1]) * UNITS_MS[found[2].decode()]


def levels_ms(text: str) -> tuple[int, ...]:
    return tuple(length_ms(part.encode()) or 0 for part in text.split())


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings that affect requests. `delays_ms` and `attempts` are by consumer group. A
    transaction takes at most `transaction_ms` from its first to its last record."""

    levels_ms: tuple[int, ...] = levels_ms(DEFAULT_LEVELS)
    first_level: int = 3
    max_attempts: int = 16
    delays_ms: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    immunity_ms: int = 6_000
    check_interval_ms: int = 30_000
    max_checks: int = 15
    retry_prefix: str = "retry."
    dlq_prefix: str = "dlq."
    transaction_ms: int = 60_000
    proves_recalls: bool = True

    def retry_delay_ms(self, group: str, attempt: int) -> int:
        """Return the delay by RocketMQ's rule: level 3 + n, or the group's own delays. The last
        delay repeats."""
        own = self.delays_ms.get(group) or self.levels_ms[self.first_level - 1 :]
        return own[min(attempt, len(own) - 1)]

    def is_exhausted(self, group: str, attempt: int) -> bool:
        return attempt >= self.attempts.get(group, self.max_attempts)

    def check_ms(self, prepare: Incoming, check: int) -> int:
        immunity = prepare.header("timer-check-immunity")
        immunity_ms = self.immunity_ms if immunity is None else length_ms(immunity) or 0
        return prepare.timestamp_ms + immunity_ms + (check - 1) * self.check_interval_ms


@dataclass(frozen=True, slots=True)
class Purge:
    pattern: str
    from_ms: int
    to_ms: float

    def means(self, target: str, due_ms: int) -> bool:
        return fnmatchcase(target, self.pattern) and self.from_ms <= due_ms <= self.to_ms


def is_move(record: Incoming) -> bool:
    return record.header("timer-hop-fires") is not None


def is_control(record: Incoming) -> bool:
    said = record.header("timer-transaction")
    takes_back = any(record.header(name) is not None for name in TAKING_BACK)
    return takes_back or said not in (None, b"prepare")


def asked_purge(record: Incoming) -> Purge | None:
    pattern = record.header("timer-purge")
    if pattern is None:
        return None
    from_ms = int(record.header("timer-purge-from") or b"0")
    to_ms = record.header("timer-purge-to")
    return Purge(pattern.decode(), from_ms, math.inf if to_ms is None else int(to_ms))


def asked_ident(record: Incoming) -> bytes | None:
    cancelled = record.header("timer-cancel")
    if cancelled is None and any(record.header(name) is not None for name in TAKING_BACK):
        return None
    return record.header("timer-id") if cancelled is None else cancelled


def asked_ms(record: Incoming, rules: Rules) -> int | None:
    """Return the due time, None for a form that is not judged here."""
    sent_ms = max(0, record.timestamp_ms)  # -1: it has no timestamp
    group, attempt = _failed(record)
    if group is not None and rules.is_exhausted(group, attempt) and not is_move(record):
        return sent_ms
    instant, delay = record.header("timer-deliver-at"), record.header("timer-delay")
    if instant is not None:
        return int(instant) if instant.isdigit() else None
    if delay is not None:
        delay_ms = length_ms(delay)
        return None if delay_ms is None else sent_ms + delay_ms
    return sent_ms + _level_ms(record, rules, group, attempt)


def _level_ms(record: Incoming, rules: Rules, group: str | None, attempt: int) -> int:
    level = record.header("timer-level")
    if level is not None:
        return rules.levels_ms[min(int(level), len(rules.levels_ms)) - 1] if int(level) else 0
    return 0 if group is None else rules.retry_delay_ms(group, attempt)


def asked_topic(record: Incoming, rules: Rules) -> str:
    group, attempt = _failed(record)
    if group is not None and rules.is_exhausted(group, attempt):
        return rules.dlq_prefix + group
    named = record.header("timer-topic")
    return f"{rules.retry_prefix}{group}" if named is None else named.decode()


def asked_key(record: Incoming) -> bytes | None:
    named = [value for name, value in record.headers if name == "timer-key"]
    return named[-1] if named else record.key


def users(headers: Headers) -> Headers:
    return [header for header in headers if not header[0].startswith("timer-")]


def _failed(record: Incoming) -> tuple[str | None, int]:
    group = record.header("timer-retry-group")
    return None if group is None else group.decode(), int(record.header("timer-attempt") or b"0")
