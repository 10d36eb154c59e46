"""The reader of requests beyond plain delivery (docs/guide.md), and of the proxy's own records."""

from typing import Final, NamedTuple

from proxy.protocol.body import BY_KEY, Headers, Pack, Purpose
from proxy.protocol.header_values import (
    Asked,
    DueTimes,
    Rejected,
    TargetNames,
    read_decision,
    read_delay_ms,
    read_failures,
    read_hop_from,
    read_ident,
    read_number,
    read_partition,
    read_receipt,
    required_ident,
)
from proxy.protocol.headers import (
    ATTEMPT,
    CANCEL,
    CHECK_IMMUNITY,
    CHECK_TOPIC,
    FIRST_ORIGIN,
    HOP_DUE,
    HOP_FIRES,
    HOP_FIRST,
    HOP_FROM,
    HOP_MAC,
    HOP_NOT_BEFORE,
    HOP_RESUMED,
    ID,
    INGRESS_KEY,
    KEY,
    MOVES,
    PARKED,
    PARTITION,
    PREPARE,
    PURGE,
    PURGE_FROM,
    PURGE_TO,
    PURGES,
    RECALL,
    RETRY_GROUP,
    TOPIC,
    TRANSACTION,
    shown,
)
from proxy.protocol.parsed import (
    IS_PARKED,
    Cancel,
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

LONGEST_HOP_MS: Final = 7 * 86_400_000
NO_TIME_FOR_CHECKS: Final = (
    "the half message has no timestamp that its checks could be counted from: "
    "let the producer or the topic set one"
)
NOT_OURS: Final = f"{HOP_FROM}: only the proxy itself writes it, and it did not write this record"
NO_PURGE: Final = f"{PURGE}: only the proxy itself writes it, and it did not write this record"
LAST_MS: Final = 2**63 - 1


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
    """A parser under one policy. Without an `authenticator` signatures are not checked."""

    def __init__(
        self,
        policy: Policy,
        names: TargetNames,
        times: DueTimes,
        pack: Pack,
        authenticator: HopAuthenticator | None,
    ) -> None:
        self._policy, self._names, self._times, self._pack = policy, names, times, pack
        self._authenticator = authenticator

    def read(self, record: UnparsedRecord) -> ParsedRecord:
        asked = record.asked
        try:
            if CANCEL in asked:
                self._refuse_unserved("cancel", CANCEL, record)
                return Cancel(read_ident(CANCEL, asked[CANCEL]))
            recalls_in = self._policy.recalls_in
            if RECALL in asked and recalls_in is not None:
                self._refuse_unserved("recall", RECALL, record)
                at = record.partition, record.offset
                return Recall(read_receipt(asked[RECALL], recalls_in, *at), self._known(record))
            if not PURGES.isdisjoint(asked):
                return self._purge(record)
            ident = read_ident(ID, asked[ID]) if ID in asked else None
            hop_from = self._hop_from(record)
            if hop_from is None and self._policy.serves is not None:
                self._refuse_unserved_entry(record)
        except Rejected as refused:
            return refused.rejection
        try:
            return self._request(record, ident, hop_from)
        except Rejected as refused:
            moves = MOVES & asked.keys()
            if hop_from is None or moves not in (MOVES, set()):
                return refused.rejection
            proofs, moved = proofs_of(record.key, ident), _moved(asked)
            return RejectedHop(refused.rejection, ident, hop_from, _first(asked), proofs, moved)

    def _refuse_unserved(self, kind: str, header: str, record: UnparsedRecord) -> None:
        """Requests that the proxy signed for an operator are always served."""
        if not self._policy.is_served(kind) and not self._is_signed(record):
            why = f"{header}: the setting requests.serve leaves out {kind}"
            raise Rejected("header-unsupported", why)

    def _refuse_unserved_entry(self, record: UnparsedRecord) -> None:
        asked = record.asked
        if TRANSACTION in asked:
            self._refuse_unserved("transaction", TRANSACTION, record)
        elif ID in asked:
            self._refuse_unserved("replace", ID, record)
        for header in (RETRY_GROUP, ATTEMPT):
            if header in asked:
                self._refuse_unserved("retry", header, record)

    def _is_signed(self, record: UnparsedRecord) -> bool:
        return HOP_MAC in record.asked and self._is_own(record)

    def _known(self, record: UnparsedRecord) -> tuple[bytes | None, bytes | None] | None:
        """Return key and id as proof. None: not needed."""
        if not self._policy.proves_recalls or self._is_signed(record):
            return None
        return record.key or None, record.asked.get(ID) or None

    def _purge(self, record: UnparsedRecord) -> Purge:
        asked = record.asked
        targets = (asked.get(PURGE) or b"").decode("utf-8", "replace")
        if not self._is_own(record) or TARGETS_PATTERN.fullmatch(targets) is None:
            raise Rejected("purge-bad", NO_PURGE)
        from_ms = read_number(asked, PURGE_FROM, "purge-bad") if PURGE_FROM in asked else 0
        to_ms = read_number(asked, PURGE_TO, "purge-bad") if PURGE_TO in asked else LAST_MS
        return Purge(targets, from_ms, to_ms)

    def _is_own(self, record: UnparsedRecord) -> bool:
        authenticator = self._authenticator
        return authenticator is None or authenticator.is_own(
            record.partition, record.key, record.value, record.headers
        )

    def _hop_from(self, record: UnparsedRecord) -> int | None:
        hop_from = read_hop_from(record.asked, record.offset)
        if hop_from is not None and not self._is_own(record):
            raise Rejected("hop-bad", NOT_OURS)
        return hop_from

    def _request(
        self, record: UnparsedRecord, ident: bytes | None, hop_from: int | None
    ) -> ParsedRecord:
        asked = record.asked
        if TRANSACTION not in asked:
            return self._scheduled(record, ident, hop_from)
        if asked[TRANSACTION] != PREPARE:
            return read_decision(asked[TRANSACTION], ident, hop_from)
        return self._prepared(record, required_ident(ident, PREPARE))

    def _scheduled(
        self, record: UnparsedRecord, ident: bytes | None, hop_from: int | None
    ) -> Scheduled:
        asked, headers, key, value, timestamp_ms, _partition, offset = record
        target, due_ms = self._where(asked, timestamp_ms)
        partition = read_partition(asked[PARTITION]) if PARTITION in asked else BY_KEY
        wanted_ms = max(due_ms, self._not_before_ms(asked, timestamp_ms))
        fires_ms = fires_at_ms(self._policy, wanted_ms, timestamp_ms)
        if KEY in asked:
            headers = [*headers, (INGRESS_KEY, key)]
            key = asked[KEY]
        content = (partition, key, value, headers)
        has_purpose = fires_ms != due_ms or FIRST_ORIGIN in asked or TRANSACTION in asked
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
            _held(asked),
            () if hop_from is None else proofs_of(record.key, ident),
        )

    def _not_before_ms(self, asked: Asked, timestamp_ms: int) -> int:
        """Bounded: the header must not delay a record for ever."""
        if HOP_NOT_BEFORE not in asked:
            return 0
        longest_ms = max(self._policy.max_delay_ms, LONGEST_HOP_MS)
        return min(read_number(asked, HOP_NOT_BEFORE), timestamp_ms + longest_ms)

    def _where(self, asked: Asked, timestamp_ms: int) -> tuple[str, int]:
        delay_ms: int | None = 0
        if RETRY_GROUP in asked or ATTEMPT in asked:
            target, delay_ms = self._retry(asked)
        else:
            target = self._names.target(asked)
        if delay_ms is None and HOP_FROM not in asked:
            asked = {}
        return target, self._times.due_ms(asked, timestamp_ms, delay_ms or 0)

    def _retry(self, asked: Asked) -> tuple[str, int | None]:
        """Return target and delay after a failure. After too many the delay is None."""
        raw = asked.get(RETRY_GROUP)
        if not raw:
            why = f"{RETRY_GROUP} is {shown(raw)}: it must name the consumer group"
            raise Rejected("retry-bad", why)
        failures = read_failures(asked)
        group = raw.decode("utf-8", "replace")
        retry = self._policy.retry_of(group)
        if failures >= retry.max_attempts:
            return self._names.derived(self._policy.dlq_prefix, group, raw), None
        delay_ms = retry.delays_ms[min(failures, len(retry.delays_ms) - 1)]
        if asked.get(TOPIC) is not None:
            return self._names.target(asked), delay_ms
        return self._names.derived(self._policy.retry_prefix, group, raw), delay_ms

    def _prepared(self, record: UnparsedRecord, ident: bytes) -> Prepare:
        asked, policy = record.asked, self._policy
        scheduled = self._scheduled(record, ident, None)
        if record.timestamp_ms < 0:
            raise Rejected("time-unreadable", NO_TIME_FOR_CHECKS)
        immunity_ms = policy.immunity_ms
        if CHECK_IMMUNITY in asked:
            immunity_ms = read_delay_ms(CHECK_IMMUNITY, asked[CHECK_IMMUNITY])
        check_topic = None
        if CHECK_TOPIC in asked:
            check_topic = self._names.named_in(CHECK_TOPIC, asked[CHECK_TOPIC])
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


def fires_at_ms(policy: Policy, wanted_ms: int, timestamp_ms: int) -> int:
    """Return the fire time, early enough to rewrite the record."""
    if policy.roll_after_ms is None or timestamp_ms < 0:
        return wanted_ms
    return min(wanted_ms, timestamp_ms + policy.roll_after_ms)


def _first(asked: Asked) -> int | None:
    return read_number(asked, HOP_FIRST) if HOP_FIRST in asked else None


def _held(asked: Asked) -> int | None:
    if HOP_RESUMED in asked:
        return read_number(asked, HOP_RESUMED)
    return IS_PARKED if asked.get(HOP_NOT_BEFORE) == PARKED else None


def _moved(asked: Asked) -> Moved | None:
    if MOVES.isdisjoint(asked):
        return None
    if not asked.keys() >= MOVES:
        raise Rejected("hop-bad", NOT_OURS)
    return Moved(read_number(asked, HOP_FIRES), read_number(asked, HOP_DUE))


def _retry_of(asked: Asked) -> tuple[str, int] | None:
    group = asked.get(RETRY_GROUP)
    return (group.decode("utf-8", "replace"), read_failures(asked) + 1) if group else None


def _longest_immunity_ms(policy: Policy) -> int:
    """Half messages are never rewritten, so they must end before retention does."""
    return policy.max_delay_ms if policy.roll_after_ms is None else policy.roll_after_ms // 2
