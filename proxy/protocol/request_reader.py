"""The reader of requests in ingress headers (docs/guide.md#rules-for-all-headers).

The result depends only on the record and the policy at its offset. Bad input gives a `Rejection`.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from operator import itemgetter, sub
from typing import Final, NamedTuple, TypeAlias, cast

from proxy.protocol.aliases import Translator
from proxy.protocol.body import (
    BY_KEY,
    SHAPES,
    Headers,
    Message,
    Purpose,
    delivery_of,
    has_purpose,
    kept_time,
    packer,
)
from proxy.protocol.header_values import (
    LONGEST_ID_BYTES,
    Asked,
    Rejected,
    TargetNames,
    read_delay_ms,
    read_partition,
)
from proxy.protocol.headers import (
    CANCEL,
    DELAY,
    DELIVER_AT,
    HOP_FROM,
    ID,
    INGRESS_KEY,
    KEY,
    KNOWN,
    LEVEL,
    MOVES,
    PARTITION,
    PLAIN,
    PREFIX,
    PURGE,
    PURGES,
    RECALL,
    REQUESTS,
    SKIPPED,
    TOPIC,
    UNREADABLE,
    remember,
    shown,
    text_of,
)
from proxy.protocol.outcomes import RECORD_UNREADABLE, Rejection, unforeseen
from proxy.protocol.parsed import (
    Cancel,
    Decision,
    ParsedRecord,
    Prepare,
    Recall,
    RejectedHop,
    Scheduled,
)
from proxy.protocol.policy import Policy
from proxy.protocol.position import LAST_OFFSET
from proxy.protocol.proofs import HopAuthenticator, recall_names, receipt_name
from proxy.protocol.special_requests import SpecialRequests, UnparsedRecord
from proxy.protocol.times import LATEST_MS, MAX_DIGITS, parse_instant_ms
from storage.store import Entry

_fires_ms = itemgetter(0)

FOREVER_MS: Final = 2**62
USUAL: Final = PLAIN | {ID}
TARGET_AND_TIME: Final = 2
"""Number of request headers in most records: target and time."""
MOST_USUAL_NAMES: Final = 1_000
LONGEST_USUAL_NAME: Final = 100
MOST_SHOWN_NAME: Final = 80
"""Unknown names are cut to this length. Comparing a megabyte to all known names takes a second."""
NO_ID: Final = bytes(bytearray(b"no id"))
"""Stands for a missing id. Built at run time: a constant could be the same object as an id."""


# The requests of a batch. A usual record is an `Entry` or a `WithId`: plain tuples, because named
# tuples would take five times as long. Only this module knows this form.

WithId: TypeAlias = tuple[Entry, bytes]
Compact: TypeAlias = Entry | WithId | ParsedRecord
"""A usual record without an id, a usual record with an id, or any other parsed record."""

ALL_USUAL: Final = {tuple}
NO_DELAY_MS: Final = 20 * 366 * 86_400_000
"""A record without a timestamp (-1) seems to have at least this delay."""
WITH_ID: Final = (Scheduled, RejectedHop, Cancel, Prepare, Decision)


class UsualRecords(NamedTuple):
    """Usual records in order. `named`: the entries that have an id. `idents`: their ids."""

    entries: Sequence[Entry]
    named: Sequence[Entry]
    idents: Sequence[bytes]


class AskedFor(NamedTuple):
    """The producers' records with a target, as columns."""

    targets: Sequence[str]
    delays_ms: Sequence[int]
    """Time from timestamp to due, perhaps negative."""
    retries: Sequence[tuple[str, int]] = ()


class ParsedBatch:
    """The requests of a batch, in order. Entries with a longer delay than `rolls_after_ms` roll."""

    __slots__ = ("_records", "_rolls_after_ms", "_timestamps_ms")

    def __init__(
        self, records: Sequence[Compact], timestamps_ms: Sequence[int], rolls_after_ms: int
    ) -> None:
        self._records, self._timestamps_ms = records, timestamps_ms
        self._rolls_after_ms = rolls_after_ms

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> ParsedRecord:
        return full(self._records[index])

    def usual(self) -> UsualRecords | None:
        """Return all records, or None if one is unusual."""
        if set(map(type, self._records)) != ALL_USUAL:
            return None
        usual = cast("Sequence[Entry | WithId]", self._records)
        with_ids = [record for record in usual if len(record) == 2]
        if not with_ids:
            return UsualRecords(cast("Sequence[Entry]", usual), (), ())
        named, idents = zip(*with_ids, strict=True)
        if len(named) == len(usual):
            return UsualRecords(named, named, idents)
        entries = [record[0] if len(record) == 2 else record for record in usual]
        return UsualRecords(entries, named, idents)

    def own(self) -> Iterator[tuple[Entry | None, bytes | None, int]]:
        """Yield entry, id and due of each record. Only producers' deliveries have an entry."""
        for record in self._records:
            if type(record) is tuple:
                if len(record) == 2:
                    yield record[0], record[1], record[0][0]
                else:
                    yield record, None, 0  # type: ignore[misc]
            elif type(record) is Scheduled and record.hop_from is None and record.ident is not None:
                yield record.entry, record.ident, record.due_ms
            else:
                yield None, None, 0

    def asked(self, first: int, upto: int) -> AskedFor:
        records, times = self._records[first:upto], self._timestamps_ms[first:upto]
        if set(map(type, records)) == ALL_USUAL:
            usual = cast("Sequence[Entry | WithId]", records)
            entries = [record[0] if len(record) == 2 else record for record in usual]
            delays_ms = list(map(sub, map(_fires_ms, entries), times))
            if max(delays_ms) < min(self._rolls_after_ms, NO_DELAY_MS):
                return AskedFor([entry[2] for entry in entries], delays_ms)
        return _asked(records, times)

    def idents(self) -> list[bytes]:
        """Return the ids in the batch, and the receipt names for its records."""
        found: list[bytes | None] = []
        for record in self._records:
            if type(record) is tuple:
                if len(record) == 2:
                    found.append(record[1])
            elif isinstance(record, WITH_ID):
                found.append(record.ident)
                if isinstance(record, Scheduled | RejectedHop) and record.first is not None:
                    found.append(receipt_name(record.first))
                    found += recall_names(record.first, record.proofs)
            elif isinstance(record, Recall):
                found.append(receipt_name(record.offset))
        return [ident for ident in found if ident is not None]

    def recalled(self) -> list[int]:
        return [one.offset for one in self._records if type(one) is Recall]


def _asked(records: Sequence[Compact], times: Sequence[int]) -> AskedFor:
    """Read records of any form. Without a timestamp the delay is 0."""
    found = [
        (one, one.due_ms - time_ms if time_ms >= 0 else 0)
        for one, time_ms in zip(map(full, records), times, strict=True)
        if isinstance(one, Prepare) or (isinstance(one, Scheduled) and one.hop_from is None)
    ]
    retries = [one.retry for one, _ in found if isinstance(one, Scheduled) and one.retry]
    return AskedFor(
        [one.entry[2] for one, _ in found], [delay_ms for _, delay_ms in found], retries
    )


def full(record: Compact) -> ParsedRecord:
    """Return a compact record as a parsed record."""
    if type(record) is not tuple:
        return record  # type: ignore[return-value]
    if len(record) == 2:
        entry, ident = record
        return Scheduled(entry, ident, None, entry[0], rolls=False)
    entry = cast(Entry, record)
    rolls = has_purpose(entry[3])
    due_ms = delivery_of(entry).due_ms if rolls else entry[0]
    return Scheduled(entry, None, None, due_ms, rolls=rolls)


class DueTimes:
    """Reader of time headers (docs/guide.md#when). Instants win over delays, delays over levels."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._delays_ms: dict[bytes | None, int] = {}

    def due_ms(self, asked: Asked, timestamp_ms: int, default_delay_ms: int = 0) -> int:
        """Return the due. Without a time header it is `default_delay_ms` after the timestamp."""
        if timestamp_ms > LATEST_MS:
            raise Rejected(
                "time-unreadable",
                f"the record's own timestamp is {timestamp_ms} ms, more than 30,000 years from "
                "now: correct the producer's clock, or set the topic's message.timestamp.type to "
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
            and HOP_FROM not in asked  # a hop: the producer's record was accepted
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
                f"setting max_past allows {most_ms} ms. Write milliseconds, not seconds",
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
                f"{LEVEL} is {shown(raw)}: it must be a whole number, 0 (no delay) or more. "
                f"A number above {len(levels_ms)} counts as {len(levels_ms)}",
            )
        level = min(int(raw), len(levels_ms))
        return levels_ms[level - 1] if level else 0


def _plus(timestamp_ms: int, delay_ms: int) -> int:
    if timestamp_ms < 0:
        raise Rejected(
            "time-unreadable",
            "the record has no timestamp that a delay could be added to: "
            "let the producer or the topic set one, or use timer-deliver-at",
        )
    return timestamp_ms + delay_ms


class RequestReader:
    """A reader of records by one policy. Without an `authenticator` signatures are not checked."""

    def __init__(self, policy: Policy, authenticator: HopAuthenticator | None = None) -> None:
        self._pack = packer()
        self._names, self._times = TargetNames(policy), DueTimes(policy)
        self._special = SpecialRequests(
            policy, self._names, self._times.due_ms, self._pack, authenticator
        )
        self._targets, self._due_ms = self._names.known, self._times.due_ms
        self._always_usual = USUAL if policy.is_served("replace") else PLAIN
        self._usual = set(self._always_usual)
        self._unknown_yet = frozenset() if policy.recalls_in else PURGES | MOVES | {RECALL}
        self._roll_after_ms = FOREVER_MS if policy.roll_after_ms is None else policy.roll_after_ms
        self._foreign = Translator(policy.aliases, has_recalls=policy.recalls_in is not None)
        self._parse = self._parse_translated if policy.aliases else self._parse_own

    def read(
        self,
        headers: Headers,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        partition: int,
        offset: int,
    ) -> ParsedRecord:
        try:
            return full(self._parse(headers, key, value, timestamp_ms, partition, offset))
        except Exception as error:  # noqa: BLE001 (one record must not stop the others)
            return unforeseen(error)

    def read_message(self, m: Message) -> ParsedRecord:
        headers, timestamp_ms = m.headers() or [], m.timestamp()[1]
        return self.read(headers, m.key(), m.value(), timestamp_ms, m.partition(), m.offset())

    def read_batch(self, messages: Sequence[Message]) -> ParsedBatch:
        parse, partition = self._parse, messages[0].partition()
        timestamps_ms = [m.timestamp()[1] for m in messages]
        try:
            parsed = [
                parse(m.headers() or [], m.key(), m.value(), timestamp_ms, partition, m.offset())
                for m, timestamp_ms in zip(messages, timestamps_ms, strict=True)
            ]
        except Exception:  # noqa: BLE001 (reading one by one finds the record)
            parsed = [self.read_message(m) for m in messages]
        return ParsedBatch(parsed, timestamps_ms, self._roll_after_ms)

    def _parse_translated(
        self, headers: Headers, key: bytes | None, value: bytes | None, *place: int
    ) -> Compact:
        translated = self._foreign.translate(headers, key, value)
        if isinstance(translated, Rejection):
            return translated
        return self._parse_own(*translated, *place)

    def _parse_own(
        self,
        headers: Headers,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        partition: int,
        offset: int,
    ) -> Compact:
        """Parse one record. Its entry keeps all headers, for a possible dead letter."""
        try:
            if len(headers) == TARGET_AND_TIME:
                plain = self._plain(headers, key, value, timestamp_ms, offset)
                if plain is not None:
                    return plain
            asked = dict(headers)
            ident = asked.get(ID, NO_ID)
            if (
                not ident
                or len(ident) > LONGEST_ID_BYTES
                or (not asked.keys() <= self._usual and self._is_special(asked))
            ):
                return _unknown_header(asked, self._unknown_yet) or self._special.read(
                    UnparsedRecord(asked, headers, key, value, timestamp_ms, partition, offset)
                )
            target = self._targets.get(asked.get(TOPIC)) or self._names.target(asked)
            due_ms = self._due_ms(asked, timestamp_ms)
            to_partition = read_partition(asked[PARTITION]) if PARTITION in asked else BY_KEY
        except Rejected as rejected:
            return rejected.rejection
        if KEY in asked:
            headers = [*headers, (INGRESS_KEY, key)]
            key = asked[KEY]
        if due_ms - timestamp_ms > self._roll_after_ms and timestamp_ms >= 0:
            purpose = Purpose(due_ms, offset, due_ms)
            body = self._pack((purpose, to_partition, key, value, headers))
            entry = timestamp_ms + self._roll_after_ms, offset, target, body
            return entry if ident is NO_ID else Scheduled(entry, ident, None, due_ms, rolls=True)
        entry = due_ms, offset, target, self._pack((to_partition, key, value, headers))
        return entry if ident is NO_ID else (entry, ident)

    def _plain(
        self,
        headers: Headers,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        offset: int,
    ) -> Entry | None:
        """Return the entry of a record with only a target and a time, else None."""
        (first, a), (second, b) = headers
        shape = SHAPES.get((first, second))
        if shape is None:
            return None
        topic, name, time = (a, second, b) if first == TOPIC else (b, first, a)
        target = self._targets.get(topic) or self._names.target({TOPIC: topic})
        if time is None:
            return None
        due_ms = self._due_ms({name: time}, timestamp_ms)
        if due_ms - timestamp_ms > self._roll_after_ms:
            return None
        return due_ms, offset, target, self._pack((shape, key, value, kept_time(time, due_ms)))

    def _is_special(self, asked: dict[str, bytes | None]) -> bool:
        strange = asked.keys() - self._usual
        if any(name.startswith(PREFIX) for name in strange):
            return True
        # Producers use few names of their own, so these are usual from now on.
        if len(self._usual) + len(strange) > MOST_USUAL_NAMES:
            self._usual = set(self._always_usual)
        names = (name for name in strange if len(name) <= LONGEST_USUAL_NAME)
        self._usual.update(islice(names, MOST_USUAL_NAMES - len(self._usual)))
        return False


def _unknown_header(
    asked: dict[str, bytes | None], unknown_yet: frozenset[str]
) -> Rejection | None:
    """Reject unknown headers that begin with `timer-`, but not on cancels, recalls and purges."""
    if any(name in asked and name not in unknown_yet for name in (CANCEL, RECALL, PURGE)):
        return None
    known = KNOWN - unknown_yet
    if asked.get(UNREADABLE) is SKIPPED:
        return Rejection(
            RECORD_UNREADABLE,
            "the client library cannot read the record's batch, and an operator has skipped it: "
            "key, value and headers are not known here",
        )
    strange = (name for name in asked if name[:6] == PREFIX and name not in known)
    return next(map(_unknown, strange), None)


def _unknown(name: str) -> Rejection:
    if name == UNREADABLE:
        return Rejection(
            "header-unreadable",
            "a header's name is not UTF-8: only the record in the ingress has the headers",
        )
    shown = name[:MOST_SHOWN_NAME]
    near = get_close_matches(shown, sorted(REQUESTS), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(REQUESTS))}"
    return Rejection("header-unknown", f"{shown!r} is no header of the proxy: {hint}")


class ReadersByOffset:
    """Readers, each with the first offset of its policy (docs/exactly-once.md, rule 3)."""

    def __init__(self, readers: Sequence[tuple[int, RequestReader]]) -> None:
        self._readers = list(readers)

    def at(self, offset: int) -> tuple[RequestReader, int]:
        """Return the reader for `offset`, and the next reader's first offset."""
        index = max(bisect_right(self._readers, offset, key=lambda first: first[0]) - 1, 0)
        until = self._readers[index + 1][0] if index + 1 < len(self._readers) else LAST_OFFSET
        return self._readers[index][1], until

    def read(self, message: Message, by_policy_at: int | None = None) -> ParsedRecord:
        """Parse one record by the policy at its own or another offset."""
        reader, _until = self.at(message.offset() if by_policy_at is None else by_policy_at)
        return reader.read_message(message)
