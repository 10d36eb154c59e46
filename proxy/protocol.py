"""Reads what an ingress record asks for in its headers (DESIGN 2).

The answer is a pure function of the record and of the policy in force at its offset, so that
a replay after any crash gives it again. Bad input is a value, `Rejection`, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeVar

from proxy.body import Headers, packer
from proxy.policy import Policy, is_legal_topic
from proxy.times import MAX_DIGITS, parse_delay_ms, parse_instant_ms
from storage.store import Entry

PREFIX: Final = "timer-"
TOPIC: Final = "timer-topic"
DELIVER_AT: Final = "timer-deliver-at"
DELAY: Final = "timer-delay"
LEVEL: Final = "timer-level"
KEY: Final = "timer-key"
PARTITION: Final = "timer-partition"

ORIGIN: Final = "timer-origin"
DUE: Final = "timer-due"
FIRST_ORIGIN: Final = "timer-first-origin"
ERROR: Final = "timer-error"
ERROR_DETAIL: Final = "timer-error-detail"
INGRESS_KEY: Final = "timer-ingress-key"
"""Private: keeps the ingress record's own key when `timer-key` gave another for the target."""
UNREADABLE: Final = "timer-unreadable"
"""Private: stands in place of headers that the client library cannot decode."""

REQUESTS: Final = frozenset({TOPIC, DELIVER_AT, DELAY, LEVEL, KEY, PARTITION})
STAMPS: Final = frozenset({ORIGIN, DUE, FIRST_ORIGIN, ERROR, ERROR_DETAIL, INGRESS_KEY})
"""A delivered or dead-lettered record sent in again carries these; they ask for nothing."""
NOT_YET: Final = frozenset(
    {
        "timer-id",
        "timer-cancel",
        "timer-retry-group",
        "timer-attempt",
        "timer-transaction",
        "timer-check-topic",
        "timer-check-immunity",
        "timer-check",
    }
)
_PLAIN: Final = REQUESTS | STAMPS

BY_KEY: Final = -1
"""Partition of an entry that leaves the choice to the key."""
CACHE_ENTRIES: Final = 10_000
CACHED_BYTES: Final = 256

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a record goes to the dead letters: a code of `REASONS` and a sentence."""

    code: str
    detail: str


REASONS: Final = {
    "header-unreadable": "the record's headers cannot be read",
    "header-unknown": "a header begins with timer- but is none of the protocol's",
    "header-unsupported": "a header of the protocol that this version does not serve yet",
    "target-missing": "no timer-topic header",
    "target-illegal": "timer-topic is not a legal Kafka topic name",
    "target-refused": "the target is the proxy's own, internal, denied or not allowed",
    "time-unreadable": "timer-deliver-at or timer-delay cannot be read, or no timestamp to add to",
    "level-unknown": "timer-level is not a whole number",
    "delay-too-long": "the due time lies beyond max_delay",
    "partition-bad": "timer-partition is not a number, or the target has no such partition",
    "target-unknown": "the target topic does not exist on the broker",
    "too-large": "the target topic does not take records of this size",
    "not-authorised": "the proxy may not write to the target topic",
    "publish-failed": "the broker refused the record for another reason; the detail says which",
    "body-gone": "with `bodies: kafka`: the ingress had deleted the record before it was due",
}
"""Every code that `timer-error` can carry. The last five, the unknown target and a partition
beyond the target's are judged when the record fires, the others when it is ingested."""


class RequestReader:
    """Turns ingress records into entries or rejections under one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._pack = packer()
        self._targets: dict[bytes | None, str | Rejection] = {}
        self._delays_ms: dict[bytes | None, int | Rejection] = {}

    def read(
        self,
        headers: Headers,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        offset: int,
    ) -> Entry | Rejection:
        """One record's fate. `timestamp_ms` is the record's own, -1 when it has none.

        The entry keeps the headers as they came; requests and stamps are stripped on delivery,
        and a dead letter shows what was really asked.
        """
        asked = dict(headers)
        if not asked.keys() <= _PLAIN:
            for name in asked:
                if name[:6] == PREFIX and name not in _PLAIN:
                    return _stranger(name)
        target = self._targets.get(asked.get(TOPIC)) or self._judge_target(asked)
        if isinstance(target, Rejection):
            return target
        due_ms = self._due_ms(asked, timestamp_ms)
        if isinstance(due_ms, Rejection):
            return due_ms
        partition = _read_partition(asked[PARTITION]) if PARTITION in asked else BY_KEY
        if isinstance(partition, Rejection):
            return partition
        if KEY in asked:
            headers = [*headers, (INGRESS_KEY, key)]
            key = asked[KEY]
        return due_ms, offset, target, self._pack((partition, key, value, headers))

    def _due_ms(self, asked: dict[str, bytes | None], timestamp_ms: int) -> int | Rejection:
        """Absolute beats relative beats level; without any, at once."""
        if DELIVER_AT in asked:
            raw = asked[DELIVER_AT]
            due_ms = (
                int(raw)
                if raw is not None and raw.isdigit() and len(raw) <= MAX_DIGITS
                else _read_instant(raw)
            )
        elif DELAY in asked:
            due_ms = _plus(timestamp_ms, self._delay_ms(asked[DELAY]))
        elif LEVEL in asked:
            due_ms = _plus(timestamp_ms, self._level_ms(asked[LEVEL]))
        else:
            return max(timestamp_ms, 0)
        if (
            not isinstance(due_ms, Rejection)
            and due_ms - timestamp_ms > self._policy.max_delay_ms
            and timestamp_ms >= 0
        ):
            return self._too_long(due_ms - timestamp_ms)
        return due_ms

    def _delay_ms(self, raw: bytes | None) -> int | Rejection:
        known = self._delays_ms.get(raw)
        if known is None:
            known = _read_delay(raw)
            _remember(self._delays_ms, raw, known)
        return known

    def _level_ms(self, raw: bytes | None) -> int | Rejection:
        if raw is None or not raw.isdigit() or len(raw) > MAX_DIGITS:
            return Rejection(
                "level-unknown",
                f"{LEVEL} is {_shown(raw)}: it must be a whole number from 0 (at once) to "
                f"{len(self._policy.levels_ms)}",
            )
        level = min(int(raw), len(self._policy.levels_ms))
        return self._policy.levels_ms[level - 1] if level else 0

    def _too_long(self, delay_ms: int) -> Rejection:
        return Rejection(
            "delay-too-long",
            f"the record asks for {delay_ms} ms after its timestamp; the setting max_delay "
            f"allows {self._policy.max_delay_ms} ms",
        )

    def _judge_target(self, asked: dict[str, bytes | None]) -> str | Rejection:
        raw = asked.get(TOPIC)
        verdict = _missing_target(asked) if raw is None else self._read_target(raw)
        if raw is not None:
            _remember(self._targets, raw, verdict)
        return verdict

    def _read_target(self, raw: bytes) -> str | Rejection:
        name = raw.decode("utf-8", "replace")
        if not is_legal_topic(name):
            return Rejection(
                "target-illegal",
                f"{TOPIC} is {_shown(raw)}: a Kafka topic name has 1 to 249 of the characters "
                "a-z A-Z 0-9 . _ -",
            )
        refusal = self._policy.refusal(name)
        return Rejection("target-refused", refusal) if refusal else name


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


def _read_instant(raw: bytes | None) -> int | Rejection:
    try:
        return parse_instant_ms(_text(raw))
    except ValueError as error:
        return Rejection("time-unreadable", f"{DELIVER_AT}: {error}")


def _read_delay(raw: bytes | None) -> int | Rejection:
    try:
        return parse_delay_ms(_text(raw))
    except ValueError as error:
        return Rejection("time-unreadable", f"{DELAY}: {error}")


def _read_partition(raw: bytes | None) -> int | Rejection:
    if raw is not None and raw.isdigit() and int(raw[:10]) < 2**31 and len(raw) <= 10:
        return int(raw)
    return Rejection(
        "partition-bad", f"{PARTITION} is {_shown(raw)}: it must be a partition number from 0"
    )


def _stranger(name: str) -> Rejection:
    if name == UNREADABLE:
        return Rejection(
            "header-unreadable",
            "a header's name is not UTF-8: the headers are left out here, and stand in the ingress",
        )
    if name in NOT_YET:
        return Rejection(
            "header-unsupported", f"the header {name} is not served by this version of the proxy"
        )
    near = get_close_matches(name, sorted(REQUESTS), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(REQUESTS))}"
    return Rejection("header-unknown", f"{name[:80]!r} is no header of the proxy: {hint}")


def _missing_target(asked: dict[str, bytes | None]) -> Rejection:
    alike = [name for name in asked if name.lower() == TOPIC and name != TOPIC]
    hint = f" (found {alike[0]!r}: header names are lower case)" if alike else ""
    return Rejection("target-missing", f"the record has no {TOPIC} header{hint}")


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("utf-8", "backslashreplace")


def _shown(raw: bytes | None) -> str:
    text = _text(raw)
    return "null" if raw is None else repr(text if len(text) <= 60 else text[:57] + "...")


def _remember(cache: dict[bytes | None, T], raw: bytes | None, verdict: T) -> None:
    """A bounded cache: full, it starts anew, and the next records fill it with what is in use."""
    if len(cache) >= CACHE_ENTRIES:
        cache.clear()
    if raw is None or len(raw) <= CACHED_BYTES:
        cache[raw] = verdict
