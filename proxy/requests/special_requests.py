"""Reads the requests beyond plain delivery: ids, cancels, retries, half messages (DESIGN 2, 5, 6).

What the proxy itself wrote to the ingress, to go on from an earlier record, is read here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from proxy.records.body import Content, Headers
from proxy.records.entry import Purpose, marked, with_purpose
from proxy.records.header_text import shown
from proxy.records.headers import (
    ATTEMPT,
    CANCEL,
    CHECK_IMMUNITY,
    CHECK_TOPIC,
    COMMIT,
    EXPIRE,
    FIRST_ORIGIN,
    HOP_FROM,
    HOP_NOT_BEFORE,
    HOPS,
    ID,
    INGRESS_KEY,
    KEY,
    PARTITION,
    PREPARE,
    RETRY_GROUP,
    ROLLBACK,
    TOPIC,
    TRANSACTION,
)
from proxy.records.rejection import Rejection
from proxy.requests.due_times import Asked, DueTimes, read_delay_ms
from proxy.requests.parsed import Cancel, Decision, Fate, Known, Prepare, Stray
from proxy.requests.policy import Policy
from proxy.requests.target_names import TargetNames
from proxy.requests.times import MAX_DIGITS

BY_KEY: Final = -1
"""Partition of an entry that leaves the choice to the key."""
LONGEST_ID_BYTES: Final = 256
LONGEST_ATTEMPT_DIGITS: Final = 9
LONGEST_HOP_MS: Final = 7 * 86_400_000
DECISIONS: Final = {COMMIT, ROLLBACK, EXPIRE}

T = TypeVar("T")


class Asking(NamedTuple):
    """A record that asks for something; `asked` are its headers, the last of each name."""

    asked: Asked
    headers: Headers
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    offset: int


class _Refused(Exception):
    """Carries a rejection out of the depth of reading."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.detail)
        self.rejection = rejection


class SpecialRequests:
    """Turns records with more than plain requests into what they ask for, under one policy."""

    def __init__(
        self,
        policy: Policy,
        names: TargetNames,
        times: DueTimes,
        pack: Callable[[Content], bytes],
    ) -> None:
        self._policy, self._names, self._times, self._pack = policy, names, times, pack

    def read(self, asking: Asking) -> Fate:
        """One record's fate."""
        asked = asking.asked
        try:
            if CANCEL in asked:
                return Cancel(_ident(CANCEL, asked[CANCEL]))
            ident = _ident(ID, asked[ID]) if ID in asked else None
            hop_from = _hop_from(asked, asking.offset)
        except _Refused as refused:
            return refused.rejection
        try:
            return self._judge(asking, ident, hop_from)
        except _Refused as refused:
            rejection = refused.rejection
            return rejection if hop_from is None else Stray(rejection, ident, hop_from)

    def _judge(self, asking: Asking, ident: bytes | None, hop_from: int | None) -> Fate:
        asked = asking.asked
        if TRANSACTION not in asked:
            return self._known(asking, ident, hop_from)
        if asked[TRANSACTION] != PREPARE:
            return _decision(asked[TRANSACTION], ident, hop_from)
        return self._prepared(asking, _needed(ident, PREPARE))

    def _known(self, asking: Asking, ident: bytes | None, hop_from: int | None) -> Known:
        asked, headers, key, value, timestamp_ms, offset = asking
        target, due_ms = self._where(asked, timestamp_ms)
        partition = _kept(read_partition(asked[PARTITION])) if PARTITION in asked else BY_KEY
        wanted_ms = max(due_ms, self._not_before_ms(asked, timestamp_ms))
        fires_ms = fires_at_ms(self._policy, wanted_ms, timestamp_ms)
        if KEY in asked:
            headers = [*headers, (INGRESS_KEY, key)]
            key = asked[KEY]
        content: Content = (partition, key, value, headers)
        if fires_ms != due_ms or FIRST_ORIGIN in asked or TRANSACTION in asked:
            content = with_purpose(content, Purpose(due_ms, offset, wanted_ms))
            target = marked(target)
        entry = fires_ms, offset, target, self._pack(content)
        return Known(entry, ident, hop_from, due_ms, fires_ms < wanted_ms)

    def _not_before_ms(self, asked: Asked, timestamp_ms: int) -> int:
        """No record waits longer than this for its next attempt, whatever it says."""
        if HOP_NOT_BEFORE not in asked:
            return 0
        longest_ms = max(self._policy.max_delay_ms, LONGEST_HOP_MS)
        return min(_number(asked, HOP_NOT_BEFORE), timestamp_ms + longest_ms)

    def _where(self, asked: Asked, timestamp_ms: int) -> tuple[str, int]:
        """The target and the due."""
        delay_ms: int | None = 0
        if RETRY_GROUP in asked or ATTEMPT in asked:
            target, delay_ms = self._retry(asked)
        else:
            target = _kept(self._names.target(asked))
        if delay_ms is None and HOP_FROM not in asked:
            asked = {}
        return target, _kept(self._times.due_ms(asked, timestamp_ms, delay_ms or 0))

    def _retry(self, asked: Asked) -> tuple[str, int | None]:
        """Where a failed consumer's record goes, and after which delay (RocketMQ: 3 + times).

        None: at once, whatever time it asks for, since it has failed too often.
        """
        raw = asked.get(RETRY_GROUP)
        if not raw:
            why = f"{RETRY_GROUP} is {shown(raw)}: it must name the consumer group"
            raise _Refused(Rejection("retry-bad", why))
        attempt = _attempt(asked)
        group = raw.decode("utf-8", "replace")
        retry = self._policy.retry_of(group)
        if attempt >= retry.max_attempts:
            return _kept(self._names.derived(self._policy.dlq_prefix + group, raw)), None
        delay_ms = retry.delays_ms[min(attempt, len(retry.delays_ms) - 1)]
        if asked.get(TOPIC) is not None:
            return _kept(self._names.target(asked)), delay_ms
        return _kept(self._names.derived(self._policy.retry_prefix + group, raw)), delay_ms

    def _prepared(self, asking: Asking, ident: bytes) -> Prepare:
        asked, policy = asking.asked, self._policy
        known = self._known(asking, ident, None)
        immunity_ms = policy.immunity_ms
        if CHECK_IMMUNITY in asked:
            immunity_ms = _kept(read_delay_ms(CHECK_IMMUNITY, asked[CHECK_IMMUNITY]))
        return Prepare(
            ident,
            known.entry,
            known.due_ms,
            known.rolls,
            self._check_topic(asked),
            max(asking.timestamp_ms, 0) + min(immunity_ms, _longest_immunity_ms(policy)),
            policy.check_interval_ms,
            policy.max_checks,
        )

    def _check_topic(self, asked: Asked) -> str | None:
        if CHECK_TOPIC not in asked:
            return None
        return _kept(self._names.named_in(CHECK_TOPIC, asked[CHECK_TOPIC]))


def fires_at_ms(policy: Policy, wanted_ms: int, timestamp_ms: int) -> int:
    """When the entry fires: in time to be rewritten before its copy in the ingress ages out."""
    if policy.roll_after_ms is None or timestamp_ms < 0:
        return wanted_ms
    return min(wanted_ms, timestamp_ms + policy.roll_after_ms)


def _longest_immunity_ms(policy: Policy) -> int:
    """An undecided half message is not rewritten: it must be decided before it ages out."""
    return policy.max_delay_ms if policy.roll_after_ms is None else policy.roll_after_ms // 2


def read_partition(raw: bytes | None) -> int | Rejection:
    """The partition that `timer-partition` asks for."""
    if raw is not None and raw.isdigit() and int(raw[:10]) < 2**31 and len(raw) <= 10:
        return int(raw)
    return Rejection(
        "partition-bad", f"{PARTITION} is {shown(raw)}: it must be a partition number from 0"
    )


def _kept(judged: T | Rejection) -> T:
    if isinstance(judged, Rejection):
        raise _Refused(judged)
    return judged


def _attempt(asked: Asked) -> int:
    raw = asked.get(ATTEMPT, b"0")
    if raw is not None and raw.isdigit() and len(raw) <= LONGEST_ATTEMPT_DIGITS:
        return int(raw)
    why = f"{ATTEMPT} is {shown(raw)}: it must be how often it failed before, from 0"
    raise _Refused(Rejection("retry-bad", why))


def is_ident(raw: bytes | None) -> bool:
    """Whether this can be an id."""
    return bool(raw) and len(raw or b"") <= LONGEST_ID_BYTES


def _ident(name: str, raw: bytes | None) -> bytes:
    if raw is not None and is_ident(raw):
        return raw
    length = f"{len(raw)} bytes long" if raw else "empty"
    why = f"{name} is {length}: an id has 1 to {LONGEST_ID_BYTES} bytes"
    raise _Refused(Rejection("id-bad", why))


def _needed(ident: bytes | None, what: bytes | None) -> bytes:
    if ident is None:
        why = f"{TRANSACTION} is {shown(what)}, but there is no {ID} header"
        raise _Refused(Rejection("id-bad", why))
    return ident


def _decision(raw: bytes | None, ident: bytes | None, hop_from: int | None) -> Decision:
    is_own = (raw == EXPIRE) == (hop_from is not None)
    if raw is None or raw not in DECISIONS or not is_own:
        why = f"{TRANSACTION} is {shown(raw)}: prepare, commit or rollback"
        raise _Refused(Rejection("transaction-bad", why))
    return Decision(_needed(ident, raw), raw.decode(), hop_from)


def _hop_from(asked: Asked, offset: int) -> int | None:
    """The entry that the record goes on from: as the proxy writes it, or not at all."""
    given = [name for name in HOPS if name in asked]
    if not given:
        return None
    numbers = {name: _number(asked, name) for name in given}
    is_whole = FIRST_ORIGIN in asked or asked.get(TRANSACTION) == EXPIRE
    if is_whole and numbers.get(HOP_FROM, offset) < offset:
        return numbers[HOP_FROM]
    why = f"{' and '.join(sorted(given))}: only the proxy itself writes these, and not so"
    raise _Refused(Rejection("hop-bad", why))


def _number(asked: Asked, name: str) -> int:
    raw = asked[name]
    if raw is not None and raw.isdigit() and len(raw) <= MAX_DIGITS:
        return int(raw)
    why = f"{name} is {shown(raw)}: only the proxy itself writes it"
    raise _Refused(Rejection("hop-bad", why))
