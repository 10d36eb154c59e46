"""A record as the readers of other schedulers' headers see it.

A reader asks it for pieces of a request, each `{own header: (value, where it comes from)}`. What
one of our own headers has settled already gives an empty piece, and the foreign value is not
even looked at: own headers beat an alias's.
"""

from typing import Final, TypeAlias

from proxy.protocol.headers import (
    CANCEL,
    DELAY,
    DELIVER_AT,
    ID,
    KEY,
    LEVEL,
    PARTITION,
    PREFIX,
    RETRY_GROUP,
    STAMPS,
    TOPIC,
    TRANSACTION,
    shown,
)
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic
from proxy.protocol.times import MAX_DIGITS

TIMES: Final = frozenset({DELIVER_AT, DELAY, LEVEL})
SETTLES_TIME: Final = TIMES | {RETRY_GROUP}
SETTLES_TARGET: Final = frozenset({TOPIC, RETRY_GROUP, TRANSACTION})

MILLISECONDS: Final = 1
SECONDS: Final = 1_000
LATEST_MS: Final = 10**MAX_DIGITS - 1
LONG_DIGITS: Final = 19
"""A Java or Go 64-bit number has at most so many digits."""
LARGEST_PARTITION: Final = 2**31 - 1
THE_KEY: Final = "the record's key"

Ask: TypeAlias = dict[str, tuple[bytes | None, str]]
"""What an alias asks for: own request header -> (its value, what it was read from)."""


class Refused(Exception):
    """A foreign header that cannot be served: a code of `rejection.REASONS` and a sentence."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class ForeignRecord:
    """One ingress record: `headers` with the last value of each name, `key` and `value`."""

    __slots__ = ("headers", "key", "value")

    def __init__(
        self, headers: dict[str, bytes | None], key: bytes | None, value: bytes | None
    ) -> None:
        self.headers = headers
        self.key = key
        self.value = value

    @property
    def has_own_request(self) -> bool:
        """Whether one of our own request headers is on it; stamps ask for nothing."""
        return any(name[:6] == PREFIX and name not in STAMPS for name in self.headers)

    @property
    def needs_time(self) -> bool:
        """Whether our own headers leave the time open."""
        return SETTLES_TIME.isdisjoint(self.headers)

    def target(self, name: str) -> Ask:
        """The target topic from header `name`, which must be there and be a legal topic name."""
        if not SETTLES_TARGET.isdisjoint(self.headers):
            return {}
        raw = self.headers.get(name)
        if raw is None:
            raise Refused("target-missing", f"the record has neither {name} nor {TOPIC}")
        if not is_legal_topic(raw.decode("utf-8", "replace")):
            raise Refused(
                "target-illegal",
                f"{name} is {shown(raw)}: {TOPIC_NAME_RULE}",
            )
        return {TOPIC: (raw, name)}

    def due_at(self, name: str, unit_ms: int = MILLISECONDS, *, signed: bool = False) -> Ask:
        """A point in time from header `name`, which counts units of `unit_ms` since 1970."""
        if not self.needs_time:
            return {}
        return {DELIVER_AT: (self._time_ms(name, unit_ms, signed=signed), name)}

    def due_after(self, name: str, unit_ms: int = MILLISECONDS, *, signed: bool = False) -> Ask:
        """A delay from header `name`, which counts units of `unit_ms`."""
        if not self.needs_time:
            return {}
        return {DELAY: (self._time_ms(name, unit_ms, signed=signed), name)}

    def target_key(self, name: str) -> Ask:
        """The key at the target from header `name`; without that header a null key."""
        return {} if KEY in self.headers else {KEY: (self.headers.get(name), name)}

    def target_partition(self, name: str) -> Ask:
        """The target partition from header `name`; nothing without that header."""
        if PARTITION in self.headers or name not in self.headers:
            return {}
        number = self.whole(name, "partition-bad")
        if number > LARGEST_PARTITION:
            raise Refused("partition-bad", f"{name} is {number}: no topic has that many partitions")
        return {PARTITION: (digits(number), name)}

    def identity(self) -> Ask:
        """The record's key as the id."""
        return {} if ID in self.headers else {ID: (self._key_as_id(), THE_KEY)}

    def cancel(self) -> Ask:
        """The record's key as the id of the pending record to cancel."""
        return {CANCEL: (self._key_as_id(), THE_KEY)}

    def whole(self, name: str, code: str, *, signed: bool = False) -> int:
        """The whole number in header `name`; with `signed` a sign may stand before it."""
        raw = self.headers.get(name)
        text = b"" if raw is None else raw
        bare = text[1:] if signed and text[:1] in {b"+", b"-"} else text
        if len(bare) <= LONG_DIGITS and bare.isdigit():
            return int(text)
        found = "missing" if name not in self.headers else shown(raw)
        raise Refused(code, f"{name} is {found}: it must be a whole number in digits")

    def _time_ms(self, name: str, unit_ms: int, *, signed: bool) -> bytes:
        """What lies before zero has passed: RocketMQ's clients may write a sign."""
        number = max(0, self.whole(name, "time-unreadable", signed=signed))
        if number * unit_ms > LATEST_MS:
            unit = "seconds" if unit_ms == SECONDS else "milliseconds"
            raise Refused(
                "time-unreadable",
                f"{name} is {number} and counts {unit}: that is more than 30,000 years",
            )
        return digits(number * unit_ms)

    def _key_as_id(self) -> bytes:
        if self.key is None or not self.key.strip():
            raise Refused(
                "header-unreadable",
                f"{THE_KEY} is {shown(self.key)}: in the words of this record's headers the key "
                "is the id, so there must be one",
            )
        return self.key


def digits(number: int) -> bytes:
    """A number as our own headers carry it."""
    return b"%d" % number
