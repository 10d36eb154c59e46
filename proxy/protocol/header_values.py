"""Readers of single header values: times, targets, partitions, ids, attempts, hops."""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar, cast

from proxy.protocol.headers import (
    ATTEMPT,
    COMMIT,
    DELAY,
    DELIVER_AT,
    EXPIRE,
    FIRST_ORIGIN,
    HOP_FROM,
    HOP_MAC,
    HOPS,
    ID,
    LEVEL,
    PARTITION,
    RECALL,
    ROLLBACK,
    TOPIC,
    TRANSACTION,
    remember,
    shown,
    text_of,
)
from proxy.protocol.outcomes import Rejection
from proxy.protocol.parsed import Decision
from proxy.protocol.policy import TOPIC_NAME_RULE, Policy, is_legal_topic
from proxy.protocol.times import LATEST_MS, MAX_DIGITS, parse_delay_ms, parse_instant_ms

Asked: TypeAlias = Mapping[str, bytes | None]
"""A record's headers by name, the last of each."""

BY_KEY: Final = -1
"""Partition of an entry that leaves the choice to the key."""
LONGEST_ID_BYTES: Final = 256
LONGEST_FAILURES_DIGITS: Final = 9
OFFSET: Final = re.compile("0|[1-9][0-9]{0,17}")
DECISIONS: Final = {COMMIT, ROLLBACK, EXPIRE}

T = TypeVar("T")


class Rejected(Exception):
    """Carries a rejection out of the depth of reading."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection(code, detail)


def read_partition(raw: bytes | None) -> int | Rejection:
    """The partition that `timer-partition` asks for."""
    if raw is not None and raw.isdigit() and int(raw[:10]) < 2**31 and len(raw) <= 10:
        return int(raw)
    return Rejection(
        "partition-bad", f"{PARTITION} is {shown(raw)}: it must be a partition number from 0"
    )


def or_raise(answer: T | Rejection) -> T:
    """The answer; raises Rejected where it is a rejection."""
    if isinstance(answer, Rejection):
        raise Rejected(answer.code, answer.detail)
    return answer


def read_failures(asked: Asked) -> int:
    """How often the consumer has failed before (`timer-attempt`); raises Rejected."""
    raw = asked.get(ATTEMPT, b"0")
    if raw is not None and raw.isdigit() and len(raw) <= LONGEST_FAILURES_DIGITS:
        return int(raw)
    why = f"{ATTEMPT} is {shown(raw)}: it must be how often it failed before, from 0"
    raise Rejected("retry-bad", why)


def is_ident(raw: bytes | None) -> bool:
    """Whether this can be an id."""
    return bool(raw) and len(raw or b"") <= LONGEST_ID_BYTES


def read_ident(name: str, raw: bytes | None) -> bytes:
    """The id in the header `name`; raises Rejected."""
    if raw is not None and is_ident(raw):
        return raw
    length = f"{len(raw)} bytes long" if raw else "empty"
    why = f"{name} is {length}: an id has 1 to {LONGEST_ID_BYTES} bytes"
    raise Rejected("id-bad", why)


def read_receipt(raw: bytes | None, topic: str, partition: int, before: int) -> int:
    """The offset in an origin of a record of this ingress partition, below `before`."""
    prefix = f"{topic}/{partition}/"
    text = (raw or b"").decode("utf-8", "replace")
    digits = text.removeprefix(prefix)
    if text.startswith(prefix) and OFFSET.fullmatch(digits) and int(digits) < before:
        return int(digits)
    why = f"{RECALL} is {shown(raw)}: it must be {prefix} and the offset of an earlier record"
    raise Rejected("recall-bad", why)


def required_ident(ident: bytes | None, what: bytes | None) -> bytes:
    """The id of a record that must have one; raises Rejected."""
    if ident is None:
        why = f"{TRANSACTION} is {shown(what)}, but there is no {ID} header"
        raise Rejected("id-bad", why)
    return ident


def read_decision(raw: bytes | None, ident: bytes | None, hop_from: int | None) -> Decision:
    """What `timer-transaction` decides about a half message; raises Rejected."""
    is_own = (raw == EXPIRE) == (hop_from is not None)
    if raw is None or raw not in DECISIONS or not is_own:
        why = f"{TRANSACTION} is {shown(raw)}: prepare, commit or rollback"
        raise Rejected("transaction-bad", why)
    return Decision(required_ident(ident, raw), raw.decode(), hop_from)


def read_hop_from(asked: Asked, offset: int) -> int | None:
    """The entry that the record goes on from: as the proxy writes it, or not at all."""
    given = [name for name in HOPS if name in asked]
    if not given:
        return None
    numbers = {name: read_number(asked, name) for name in given if name != HOP_MAC}
    is_whole = FIRST_ORIGIN in asked or asked.get(TRANSACTION) == EXPIRE
    if is_whole and numbers.get(HOP_FROM, offset) < offset:
        return numbers[HOP_FROM]
    why = f"{' and '.join(sorted(given))}: only the proxy itself writes these, and not so"
    raise Rejected("hop-bad", why)


def read_number(asked: Asked, name: str) -> int:
    """A number that the proxy itself writes; raises Rejected."""
    return _own_number(asked, name, "hop-bad")


def read_purge_ms(asked: Asked, name: str, without_ms: int) -> int:
    """A time of a purge in epoch ms, `without_ms` where it has none; raises Rejected."""
    return _own_number(asked, name, "purge-bad") if name in asked else without_ms


def _own_number(asked: Asked, name: str, code: str) -> int:
    raw = asked[name]
    if raw is not None and raw.isdigit() and len(raw) <= MAX_DIGITS:
        return int(raw)
    raise Rejected(code, f"{name} is {shown(raw)}: only the proxy itself writes it")


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


class TargetNames:
    """Names of topics under one policy. `known`: the answers for values of `timer-topic`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.known: dict[bytes | None, str | Rejection] = {}

    def target(self, asked: Mapping[str, bytes | None]) -> str | Rejection:
        """The topic that `timer-topic` asks for."""
        raw = asked.get(TOPIC)
        if raw is None:
            return _missing(asked)
        return self.known.get(raw) or self._learn(raw)

    def named_in(self, header: str, raw: bytes | None) -> str | Rejection:
        """The topic that another header asks for."""
        return self._named(header, raw or b"")

    def derived(self, prefix: str, group: str, raw: bytes) -> str | Rejection:
        """A topic whose name the proxy makes of a consumer group's, which `raw` has."""
        name = prefix + group
        if not is_legal_topic(name):
            return Rejection(
                "target-illegal",
                f"{shown(raw)} makes the topic name {name[:80]!r}: {TOPIC_NAME_RULE}",
            )
        policy = self._policy
        refusal = policy.refusal(name, is_derived=True) or policy.group_refusal(group)
        return Rejection("target-refused", refusal) if refusal else name

    def _learn(self, raw: bytes) -> str | Rejection:
        answer = self._named(TOPIC, raw)
        remember(self.known, raw, answer)
        return answer

    def _named(self, header: str, raw: bytes) -> str | Rejection:
        name = raw.decode("utf-8", "replace")
        if not is_legal_topic(name):
            return Rejection("target-illegal", f"{header} is {shown(raw)}: {TOPIC_NAME_RULE}")
        refusal = self._policy.refusal(name)
        return Rejection("target-refused", refusal) if refusal else name


def _missing(asked: Mapping[str, bytes | None]) -> Rejection:
    alike = [name for name in asked if name.lower() == TOPIC and name != TOPIC]
    hint = f" (found {alike[0]!r}: header names are lower case)" if alike else ""
    return Rejection("target-missing", f"the record has no {TOPIC} header{hint}")
