"""The reader of requests in ingress headers (docs/guide.md#rules-for-all-headers).

It depends only on the record and the policy at its offset. It returns a `Rejection` for bad input.
"""

from bisect import bisect_right
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Final

from proxy.protocol.aliases import alias_reader
from proxy.protocol.body import BY_KEY, SHAPES, Headers, Message, Purpose, kept_time, packer
from proxy.protocol.header_values import (
    LONGEST_ID_BYTES,
    DueTimes,
    Rejected,
    TargetNames,
    read_partition,
)
from proxy.protocol.headers import (
    CANCEL,
    ID,
    INGRESS_KEY,
    KEY,
    KNOWN,
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
)
from proxy.protocol.outcomes import RECORD_UNREADABLE, Rejection, unforeseen
from proxy.protocol.parsed import Compact, ParsedBatch, ParsedRecord, Scheduled, full
from proxy.protocol.policy import Policy
from proxy.protocol.position import LAST_OFFSET
from proxy.protocol.proofs import HopAuthenticator
from proxy.protocol.special_requests import SpecialRequests, UnparsedRecord
from storage.store import Entry

FOREVER_MS: Final = 2**62
USUAL: Final = PLAIN | {ID}
TARGET_AND_TIME: Final = 2
"""Most records have only these two headers."""
MOST_USUAL_NAMES: Final = 1_000
LONGEST_USUAL_NAME: Final = 100
MOST_SHOWN_NAME: Final = 80
"""Unknown names are cut: matching a megabyte against the known names takes a second."""
NO_ID: Final = bytes(bytearray(b"no id"))
"""Stands for a missing id, compared by identity. Not a constant: the interpreter shares those."""


class RequestReader:
    """A parser under one policy. Without an `authenticator` signatures are not checked."""

    def __init__(self, policy: Policy, authenticator: HopAuthenticator | None = None) -> None:
        self._pack = packer()
        self._names, self._times = TargetNames(policy), DueTimes(policy)
        self._special = SpecialRequests(policy, self._names, self._times, self._pack, authenticator)
        self._targets, self._due_ms = self._names.known, self._times.due_ms
        self._always_usual = USUAL if policy.is_served("replace") else PLAIN
        self._usual = set(self._always_usual)
        self._unknown_yet = frozenset() if policy.recalls_in else PURGES | MOVES | {RECALL}
        self._roll_after_ms = FOREVER_MS if policy.roll_after_ms is None else policy.roll_after_ms
        self._foreign = alias_reader(policy.aliases, has_recalls=policy.recalls_in is not None)
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
        self._remember(strange)
        return False

    def _remember(self, strange: set[str]) -> None:
        """Producers use few names of their own, so treat these as usual."""
        if len(self._usual) + len(strange) > MOST_USUAL_NAMES:
            self._usual = set(self._always_usual)
        names = (name for name in strange if len(name) <= LONGEST_USUAL_NAME)
        self._usual.update(islice(names, MOST_USUAL_NAMES - len(self._usual)))


def _unknown_header(
    asked: dict[str, bytes | None], unknown_yet: frozenset[str]
) -> Rejection | None:
    """Refuse unknown headers that look like ours. Cancels, recalls and purges pass."""
    if any(name in asked and name not in unknown_yet for name in (CANCEL, RECALL, PURGE)):
        return None
    known = KNOWN - unknown_yet
    if asked.get(UNREADABLE) is SKIPPED:
        return Rejection(
            RECORD_UNREADABLE,
            "the client library cannot read the batch that this record lies in, and an operator "
            "has skipped it: key, value and headers are not known here",
        )
    strange = (name for name in asked if name[:6] == PREFIX and name not in known)
    return next(map(_unknown, strange), None)


def _unknown(name: str) -> Rejection:
    if name == UNREADABLE:
        return Rejection(
            "header-unreadable",
            "a header's name is not UTF-8: the headers are left out here, and stand in the ingress",
        )
    shown = name[:MOST_SHOWN_NAME]
    near = get_close_matches(shown, sorted(REQUESTS), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(REQUESTS))}"
    return Rejection("header-unknown", f"{shown!r} is no header of the proxy: {hint}")


class ReadersByOffset:
    """Readers with their policies' first offsets (docs/exactly-once.md, rule 3)."""

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
