"""When a record asks to be delivered (docs/guide.md#when): absolute beats relative beats level."""

from typing import cast

from proxy.records.header_text import remember, shown, text_of
from proxy.records.headers import DELAY, DELIVER_AT, HOP_FROM, LEVEL
from proxy.records.rejection import Rejection
from proxy.requests.header_values import Asked
from proxy.requests.policy import Policy
from proxy.requests.times import LATEST_MS, MAX_DIGITS, parse_delay_ms, parse_instant_ms


class DueTimes:
    """Reads the time headers under one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._delays_ms: dict[bytes | None, int | Rejection] = {}

    def due_ms(self, asked: Asked, timestamp_ms: int, default_delay_ms: int = 0) -> int | Rejection:
        """Epoch ms; `default_delay_ms` after the timestamp where no header says anything."""
        if timestamp_ms > LATEST_MS:
            return _no_clock_says(timestamp_ms)
        if DELIVER_AT in asked:
            raw = asked[DELIVER_AT]
            due_ms = (
                int(raw)
                if raw is not None and raw.isdigit() and len(raw) <= MAX_DIGITS
                else _read_instant(raw)
            )
            if self._is_past(due_ms, timestamp_ms) and HOP_FROM not in asked:
                return self._too_early(timestamp_ms - cast(int, due_ms))
        elif DELAY in asked:
            due_ms = _plus(timestamp_ms, self._delay_ms(asked[DELAY]))
        elif LEVEL in asked:
            due_ms = _plus(timestamp_ms, self._level_ms(asked[LEVEL]))
        elif default_delay_ms:
            return _plus(timestamp_ms, default_delay_ms)
        else:
            return max(timestamp_ms, 0)
        if (
            not isinstance(due_ms, Rejection)
            and due_ms - timestamp_ms > self._policy.max_delay_ms
            and timestamp_ms >= 0
            and HOP_FROM not in asked  # it was accepted when its first origin was read
        ):
            return self._too_long(due_ms - timestamp_ms)
        return due_ms

    def _delay_ms(self, raw: bytes | None) -> int | Rejection:
        known = self._delays_ms.get(raw)
        if known is None:
            known = read_delay_ms(DELAY, raw)
            remember(self._delays_ms, raw, known)
        return known

    def _level_ms(self, raw: bytes | None) -> int | Rejection:
        if raw is None or not raw.isdigit() or len(raw) > MAX_DIGITS:
            return Rejection(
                "level-unknown",
                f"{LEVEL} is {shown(raw)}: it must be a whole number from 0 (at once) to "
                f"{len(self._policy.levels_ms)}",
            )
        level = min(int(raw), len(self._policy.levels_ms))
        return self._policy.levels_ms[level - 1] if level else 0

    def _is_past(self, due_ms: int | Rejection, timestamp_ms: int) -> bool:
        most_ms = self._policy.max_past_ms
        if most_ms is None or isinstance(due_ms, Rejection):
            return False
        return timestamp_ms - due_ms > most_ms

    def _too_early(self, past_ms: int) -> Rejection:
        return Rejection(
            "time-past",
            f"{DELIVER_AT} lies {past_ms} ms before the record's timestamp; the setting max_past "
            f"allows {self._policy.max_past_ms} ms. It takes milliseconds, not seconds",
        )

    def _too_long(self, delay_ms: int) -> Rejection:
        return Rejection(
            "delay-too-long",
            f"the record asks for {delay_ms} ms after its timestamp; the setting max_delay "
            f"allows {self._policy.max_delay_ms} ms",
        )


def read_delay_ms(name: str, raw: bytes | None) -> int | Rejection:
    """The length of time in the header `name`."""
    try:
        return parse_delay_ms(text_of(raw))
    except ValueError as error:
        return Rejection("time-unreadable", f"{name}: {error}")


def _read_instant(raw: bytes | None) -> int | Rejection:
    try:
        return parse_instant_ms(text_of(raw))
    except ValueError as error:
        return Rejection("time-unreadable", f"{DELIVER_AT}: {error}")


def _no_clock_says(timestamp_ms: int) -> Rejection:
    return Rejection(
        "time-unreadable",
        f"the record's own timestamp is {timestamp_ms} ms, more than 30,000 years from now: see to "
        "the producer's clock, or let the topic's message.timestamp.type be LogAppendTime",
    )


def _plus(timestamp_ms: int, delay_ms: int | Rejection) -> int | Rejection:
    if isinstance(delay_ms, Rejection):
        return delay_ms
    if timestamp_ms < 0:
        return Rejection(
            "time-unreadable",
            "the record has no timestamp that a delay could be added to: "
            "let the producer or the topic set one, or use timer-deliver-at",
        )
    return timestamp_ms + delay_ms
