"""Readers of single header values. Each raises Rejected with the reason for a dead letter."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from proxy.protocol.headers import (
    DELAY,
    DELIVER_AT,
    HOP_FROM,
    LEVEL,
    PARTITION,
    TOPIC,
    remember,
    shown,
    text_of,
)
from proxy.protocol.outcomes import Rejection
from proxy.protocol.policy import TOPIC_NAME_RULE, Policy, is_legal_topic
from proxy.protocol.times import LATEST_MS, MAX_DIGITS, parse_delay_ms, parse_instant_ms

Asked: TypeAlias = Mapping[str, bytes | None]
"""A record's headers by name; repeated names have the last value."""

LONGEST_ID_BYTES: Final = 256


class Rejected(Exception):
    """A record that cannot be served."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection(code, detail)


class DueTimes:
    """Reader of time headers (docs/guide.md#when). Instants win over delays, delays over levels."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._delays_ms: dict[bytes | None, int] = {}

    def due_ms(self, asked: Asked, timestamp_ms: int, default_delay_ms: int = 0) -> int:
        """Return epoch ms, `default_delay_ms` after the timestamp if no header says otherwise."""
        if timestamp_ms > LATEST_MS:
            raise Rejected(
                "time-unreadable",
                f"the record's own timestamp is {timestamp_ms} ms, more than 30,000 years from "
                "now: see to the producer's clock, or let the topic's message.timestamp.type be "
                "LogAppendTime",
            )
        if DELIVER_AT in asked:
            due_ms = self._instant_ms(asked, timestamp_ms)
        elif DELAY in asked:
            due_ms = _plus(timestamp_ms, self._delay_ms(asked[DELAY]))
        elif LEVEL in asked:
            due_ms = _plus(timestamp_ms, self._level_ms(asked[LEVEL]))
        elif default_delay_ms:
            return _plus(timestamp_ms, default_delay_ms)
        else:
            return max(timestamp_ms, 0)
        if (
            due_ms - timestamp_ms > self._policy.max_delay_ms
            and timestamp_ms >= 0
            and HOP_FROM not in asked  # it was accepted when its first origin was read
        ):
            raise Rejected(
                "delay-too-long",
                f"the record asks for {due_ms - timestamp_ms} ms after its timestamp; the setting "
                f"max_delay allows {self._policy.max_delay_ms} ms",
            )
        return due_ms

    def _instant_ms(self, asked: Asked, timestamp_ms: int) -> int:
        raw, most_ms = asked[DELIVER_AT], self._policy.max_past_ms
        if raw is not None and raw.isdigit() and len(raw) <= MAX_DIGITS:
            due_ms = int(raw)
        else:
            try:
                due_ms = parse_instant_ms(text_of(raw))
            except ValueError as error:
                raise Rejected("time-unreadable", f"{DELIVER_AT}: {error}") from None
        if most_ms is not None and timestamp_ms - due_ms > most_ms and HOP_FROM not in asked:
            raise Rejected(
                "time-past",
                f"{DELIVER_AT} lies {timestamp_ms - due_ms} ms before the record's timestamp; the "
                f"setting max_past allows {most_ms} ms. It takes milliseconds, not seconds",
            )
        return due_ms

    def _delay_ms(self, raw: bytes | None) -> int:
        known = self._delays_ms.get(raw)
        if known is None:
            known = read_delay_ms(DELAY, raw)
            remember(self._delays_ms, raw, known)
        return known

    def _level_ms(self, raw: bytes | None) -> int:
        levels_ms = self._policy.levels_ms
        if raw is None or not raw.isdigit() or len(raw) > MAX_DIGITS:
            raise Rejected(
                "level-unknown",
                f"{LEVEL} is {shown(raw)}: it must be a whole number from 0 (at once) to "
                f"{len(levels_ms)}",
            )
        level = min(int(raw), len(levels_ms))
        return levels_ms[level - 1] if level else 0


def read_delay_ms(name: str, raw: bytes | None) -> int:
    """Return the delay in a header."""
    try:
        return parse_delay_ms(text_of(raw))
    except ValueError as error:
        raise Rejected("time-unreadable", f"{name}: {error}") from None


def _plus(timestamp_ms: int, delay_ms: int) -> int:
    if timestamp_ms < 0:
        raise Rejected(
            "time-unreadable",
            "the record has no timestamp that a delay could be added to: "
            "let the producer or the topic set one, or use timer-deliver-at",
        )
    return timestamp_ms + delay_ms


class TargetNames:
    """Checks of topic names under one policy. Their existence is checked later."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.known: dict[bytes | None, str] = {}
        """Accepted targets by `timer-topic`."""
        self._refused: dict[bytes | None, Rejection] = {}

    def target(self, asked: Asked) -> str:
        raw = asked.get(TOPIC)
        if raw is None:
            raise _missing(asked)
        if raw in self._refused:
            refused = self._refused[raw]
            raise Rejected(refused.code, refused.detail)
        return self.known.get(raw) or self._learn(raw)

    def named_in(self, header: str, raw: bytes | None) -> str:
        name = (raw or b"").decode("utf-8", "replace")
        if not is_legal_topic(name):
            raise Rejected("target-illegal", f"{header} is {shown(raw or b'')}: {TOPIC_NAME_RULE}")
        if refusal := self._policy.refusal(name):
            raise Rejected("target-refused", refusal)
        return name

    def derived(self, prefix: str, group: str, raw: bytes) -> str:
        name = prefix + group
        if not is_legal_topic(name):
            raise Rejected(
                "target-illegal",
                f"{shown(raw)} makes the topic name {name[:80]!r}: {TOPIC_NAME_RULE}",
            )
        policy = self._policy
        if refusal := policy.refusal(name, is_derived=True) or policy.group_refusal(group):
            raise Rejected("target-refused", refusal)
        return name

    def _learn(self, raw: bytes) -> str:
        try:
            name = self.named_in(TOPIC, raw)
        except Rejected as rejected:
            remember(self._refused, raw, rejected.rejection)
            raise
        remember(self.known, raw, name)
        return name


def _missing(asked: Asked) -> Rejected:
    alike = [name for name in asked if name.lower() == TOPIC and name != TOPIC]
    hint = f" (found {alike[0]!r}: header names are lower case)" if alike else ""
    return Rejected("target-missing", f"the record has no {TOPIC} header{hint}")


def read_partition(raw: bytes | None) -> int:
    """Return the partition in `timer-partition`."""
    if raw is not None and raw.isdigit() and int(raw[:10]) < 2**31 and len(raw) <= 10:
        return int(raw)
    why = f"{PARTITION} is {shown(raw)}: it must be a partition number from 0"
    raise Rejected("partition-bad", why)


def is_ident(raw: bytes | None) -> bool:
    """Return whether this is a legal id."""
    return bool(raw) and len(raw or b"") <= LONGEST_ID_BYTES
