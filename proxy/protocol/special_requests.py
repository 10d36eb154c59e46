"""The reader of requests beyond plain delivery (docs/guide.md), and of the proxy's own records."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from proxy.protocol import headers as names
from proxy.protocol.body import BY_KEY, Headers, Pack, Purpose
from proxy.protocol.header_values import (
    LONGEST_ID_BYTES,
    Asked,
    Rejected,
    TargetNames,
    is_ident,
    read_delay_ms,
    read_partition,
)
from proxy.protocol.headers import shown
from proxy.protocol.parsed import (
    IS_PAUSED,
    Cancel,
    Decision,
    Moved,
    ParsedRecord,
    Prepare,
    Purge,
    Recall,
    RejectedHop,
    Scheduled,
)
from proxy.protocol.policy import TARGETS_PATTERN, Policy
from proxy.protocol.proofs import HopAuthenticator, proofs_of
from proxy.protocol.times import MAX_DIGITS

LONGEST_HOP_MS: Final = 7 * 86_400_000
NO_TIME_FOR_CHECKS: Final = (
    "the half message has no timestamp that its checks could be counted from: "
    "let the producer or the topic set one"
)
NOT_OURS: Final = "only the proxy writes this header, and it did not write this record"
NOT_OUR_HOP: Final = f"{names.HOP_FROM}: {NOT_OURS}"
LAST_MS: Final = 2**63 - 1
LONGEST_FAILURES_DIGITS: Final = 9
OFFSET: Final = re.compile("0|[1-9][0-9]{0,17}")
TRANSACTIONS: Final = frozenset({names.PREPARE, names.COMMIT, names.ROLLBACK, names.EXPIRE})


class UnparsedRecord(NamedTuple):
    """A record as fetched. `asked` has the last value of each header."""

    asked: Asked
    headers: Headers
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    partition: int
    offset: int


class SpecialRequests:
    """A reader of records by one policy. Without an `authenticator` signatures are not checked."""

    def __init__(
        self,
        policy: Policy,
        topics: TargetNames,
        due_ms: Callable[[Asked, int, int], int],
        pack: Pack,
        authenticator: HopAuthenticator | None,
    ) -> None:
        self._policy, self._topics, self._due_ms, self._pack = policy, topics, due_ms, pack
        self._authenticator = authenticator

    def read(self, record: UnparsedRecord) -> ParsedRecord:
        asked = record.asked
        try:
            if names.CANCEL in asked:
                self._refuse_unserved("cancel", names.CANCEL, record)
                return Cancel(_read_ident(names.CANCEL, asked[names.CANCEL]))
            if names.RECALL in asked and self._policy.recalls_in is not None:
                self._refuse_unserved("recall", names.RECALL, record)
                return self._recall(record, f"{self._policy.recalls_in}/{record.partition}/")
            if not names.PURGES.isdisjoint(asked):
                return self._purge(record)
            ident = _read_ident(names.ID, asked[names.ID]) if names.ID in asked else None
            hop_from = self._hop_from(record)
            if hop_from is None and self._policy.serves is not None:
                self._refuse_unserved_entry(record)
        except Rejected as refused:
            return refused.rejection
        try:
            return self._request(record, ident, hop_from)
        except Rejected as refused:
            moves = names.MOVES & asked.keys()
            if hop_from is None or moves not in (names.MOVES, set()):
                return refused.rejection
            proofs, moved = proofs_of(record.key, ident), _moved(asked)
            return RejectedHop(refused.rejection, ident, hop_from, _first(asked), proofs, moved)

    def _refuse_unserved(self, kind: str, header: str, record: UnparsedRecord) -> None:
        """Raise Rejected if requests of this kind are not served. Requests that the proxy signed
        for an operator are always served."""
        if not self._policy.is_served(kind) and not self._is_signed(record):
            why = f"{header}: the setting requests.serve leaves out {kind}"
            raise Rejected("header-unsupported", why)

    def _refuse_unserved_entry(self, record: UnparsedRecord) -> None:
        asked = record.asked
        if names.TRANSACTION in asked:
            self._refuse_unserved("transaction", names.TRANSACTION, record)
        elif names.ID in asked:
            self._refuse_unserved("replace", names.ID, record)
        for header in (names.RETRY_GROUP, names.ATTEMPT):
            if header in asked:
                self._refuse_unserved("retry", header, record)

    def _is_signed(self, record: UnparsedRecord) -> bool:
        return names.HOP_MAC in record.asked and self._is_own(record)

    def _recall(self, record: UnparsedRecord, prefix: str) -> Recall:
        """Read the receipt, which must be of this ingress partition. If a proof is needed, read key
        and id as proof."""
        raw = record.asked[names.RECALL]
        text = (raw or b"").decode("utf-8", "replace")
        digits = text.removeprefix(prefix)
        is_receipt = text.startswith(prefix) and OFFSET.fullmatch(digits) is not None
        if not is_receipt or int(digits) >= record.offset:
            why = f"is {shown(raw)}: it must be {prefix} and the offset of an earlier record"
            raise Rejected("recall-bad", f"{names.RECALL} {why}")
        if not self._policy.proves_recalls or self._is_signed(record):
            return Recall(int(digits))
        return Recall(int(digits), (record.key or None, record.asked.get(names.ID) or None))

    def _purge(self, record: UnparsedRecord) -> Purge:
        asked = record.asked
        targets = (asked.get(names.PURGE) or b"").decode("utf-8", "replace")
        if not self._is_own(record) or TARGETS_PATTERN.fullmatch(targets) is None:
            raise Rejected("purge-bad", f"{names.PURGE}: {NOT_OURS}")
        bounds_ms = {names.PURGE_FROM: 0, names.PURGE_TO: LAST_MS}
        for name in bounds_ms:
            if name in asked:
                bounds_ms[name] = read_number(asked, name, "purge-bad")
        return Purge(targets, *bounds_ms.values())

    def _is_own(self, record: UnparsedRecord) -> bool:
        authenticator = self._authenticator
        return authenticator is None or authenticator.is_own(
            record.partition, record.key, record.value, record.headers
        )

    def _hop_from(self, record: UnparsedRecord) -> int | None:
        """Return the offset of the entry that this record continues."""
        asked = record.asked
        given = names.HOPS & asked.keys()
        if not given:
            return None
        numbers = {
            name: read_number(asked, name) for name in names.HOPS if name in given - {names.HOP_MAC}
        }
        is_whole = names.FIRST_ORIGIN in asked or asked.get(names.TRANSACTION) == names.EXPIRE
        if not is_whole or numbers.get(names.HOP_FROM, record.offset) >= record.offset:
            why = "only the proxy writes these headers, and never with such values"
            raise Rejected("hop-bad", f"{' and '.join(sorted(given))}: {why}")
        if not self._is_own(record):
            raise Rejected("hop-bad", NOT_OUR_HOP)
        return numbers[names.HOP_FROM]

    def _request(
        self, record: UnparsedRecord, ident: bytes | None, hop_from: int | None
    ) -> ParsedRecord:
        if names.TRANSACTION not in record.asked:
            return self._scheduled(record, ident, hop_from)
        what = record.asked[names.TRANSACTION]
        is_own = (what == names.EXPIRE) == (hop_from is not None)
        if what is None or what not in TRANSACTIONS or not (is_own or what == names.PREPARE):
            why = f"{names.TRANSACTION} is {shown(what)}: it must be prepare, commit or rollback"
            raise Rejected("transaction-bad", why)
        if ident is None:
            why = f"{names.TRANSACTION} is {shown(what)}, but there is no {names.ID} header"
            raise Rejected("id-bad", why)
        if what == names.PREPARE:
            return self._prepared(record, ident)
        return Decision(ident, what.decode(), hop_from)

    def _scheduled(
        self, record: UnparsedRecord, ident: bytes | None, hop_from: int | None
    ) -> Scheduled:
        asked, headers, key, value, timestamp_ms, _partition, offset = record
        target, due_ms = self._where(asked, timestamp_ms)
        partition = read_partition(asked[names.PARTITION]) if names.PARTITION in asked else BY_KEY
        wanted_ms = max(due_ms, self._not_before_ms(asked, timestamp_ms))
        fires_ms, roll_after_ms = wanted_ms, self._policy.roll_after_ms
        if roll_after_ms is not None and timestamp_ms >= 0:
            fires_ms = min(wanted_ms, timestamp_ms + roll_after_ms)
        if names.KEY in asked:
            headers = [*headers, (names.INGRESS_KEY, key)]
            key = asked[names.KEY]
        content = (partition, key, value, headers)
        is_marked = names.FIRST_ORIGIN in asked or names.TRANSACTION in asked
        has_purpose = is_marked or fires_ms != due_ms
        purpose = Purpose(due_ms, offset, wanted_ms)
        body = self._pack((purpose, *content) if has_purpose else content)
        entry = fires_ms, offset, target, body
        first = None if hop_from is None else _first(asked)
        return Scheduled(
            entry,
            ident,
            hop_from,
            due_ms,
            fires_ms < wanted_ms,
            first,
            _retry_of(asked),
            _moved(asked),
            _resumed_ms(asked),
            () if hop_from is None else proofs_of(record.key, ident),
        )

    def _not_before_ms(self, asked: Asked, timestamp_ms: int) -> int:
        """Return the not-before time. It is bounded, so that no record is delayed for ever."""
        if names.HOP_NOT_BEFORE not in asked:
            return 0
        longest_ms = max(self._policy.max_delay_ms, LONGEST_HOP_MS)
        return min(read_number(asked, names.HOP_NOT_BEFORE), timestamp_ms + longest_ms)

    def _where(self, asked: Asked, timestamp_ms: int) -> tuple[str, int]:
        delay_ms: int | None = 0
        if names.RETRY_GROUP in asked or names.ATTEMPT in asked:
            target, delay_ms = self._retry(asked)
        else:
            target = self._topics.target(asked)
        if delay_ms is None and names.HOP_FROM not in asked:
            asked = {}
        return target, self._due_ms(asked, timestamp_ms, delay_ms or 0)

    def _retry(self, asked: Asked) -> tuple[str, int | None]:
        """Return target and delay after a failure. If no delivery attempt is left, the delay is
        None."""
        raw = asked.get(names.RETRY_GROUP)
        if not raw:
            why = f"{names.RETRY_GROUP} is {shown(raw)}: it must name the consumer group"
            raise Rejected("retry-bad", why)
        failures = _read_failures(asked)
        group = raw.decode("utf-8", "replace")
        retry = self._policy.retry_of(group)
        if failures >= retry.max_attempts:
            return self._topics.derived(self._policy.dlq_prefix, group, raw), None
        delay_ms = retry.delays_ms[min(failures, len(retry.delays_ms) - 1)]
        if asked.get(names.TOPIC) is not None:
            return self._topics.target(asked), delay_ms
        return self._topics.derived(self._policy.retry_prefix, group, raw), delay_ms

    def _prepared(self, record: UnparsedRecord, ident: bytes) -> Prepare:
        asked, policy = record.asked, self._policy
        scheduled = self._scheduled(record, ident, None)
        if record.timestamp_ms < 0:
            raise Rejected("time-unreadable", NO_TIME_FOR_CHECKS)
        immunity_ms = policy.immunity_ms
        if names.CHECK_IMMUNITY in asked:
            immunity_ms = read_delay_ms(names.CHECK_IMMUNITY, asked[names.CHECK_IMMUNITY])
        check_topic = None
        if names.CHECK_TOPIC in asked:
            check_topic = self._topics.named_in(names.CHECK_TOPIC, asked[names.CHECK_TOPIC])
        return Prepare(
            ident,
            scheduled.entry,
            scheduled.due_ms,
            scheduled.rolls,
            check_topic,
            record.timestamp_ms + min(immunity_ms, _longest_immunity_ms(policy)),
            policy.check_interval_ms,
            policy.max_checks,
            record.timestamp_ms,
        )


def _first(asked: Asked) -> int | None:
    return read_number(asked, names.HOP_FIRST) if names.HOP_FIRST in asked else None


def _resumed_ms(asked: Asked) -> int | None:
    if names.HOP_RESUMED in asked:
        return read_number(asked, names.HOP_RESUMED)
    return IS_PAUSED if asked.get(names.HOP_NOT_BEFORE) == names.UNTIL_RESUMED else None


def _moved(asked: Asked) -> Moved | None:
    if names.MOVES.isdisjoint(asked):
        return None
    if not asked.keys() >= names.MOVES:
        raise Rejected("hop-bad", NOT_OUR_HOP)
    return Moved(read_number(asked, names.HOP_FIRES), read_number(asked, names.HOP_DUE))


def _read_ident(name: str, raw: bytes | None) -> bytes:
    if raw is not None and is_ident(raw):
        return raw
    length = f"{len(raw)} bytes long" if raw else "empty"
    raise Rejected("id-bad", f"{name} is {length}: an id has 1 to {LONGEST_ID_BYTES} bytes")


def _read_failures(asked: Asked) -> int:
    raw = asked.get(names.ATTEMPT, b"0")
    if raw is not None and raw.isdigit() and len(raw) <= LONGEST_FAILURES_DIGITS:
        return int(raw)
    why = f"{names.ATTEMPT} is {shown(raw)}: it must be the number of earlier failures, from 0"
    raise Rejected("retry-bad", why)


def read_number(asked: Asked, name: str, code: str = "hop-bad") -> int:
    """Return a number in a header that only the proxy writes."""
    raw = asked[name]
    if raw is not None and raw.isdigit() and len(raw) <= MAX_DIGITS:
        return int(raw)
    raise Rejected(code, f"{name} is {shown(raw)}: only the proxy writes this header")


def _retry_of(asked: Asked) -> tuple[str, int] | None:
    group = asked.get(names.RETRY_GROUP)
    return (group.decode("utf-8", "replace"), _read_failures(asked) + 1) if group else None


def _longest_immunity_ms(policy: Policy) -> int:
    """Return the longest time before the first check-back. Half messages are never rewritten, so
    they must end before retention deletes them."""
    return policy.max_delay_ms if policy.roll_after_ms is None else policy.roll_after_ms // 2
