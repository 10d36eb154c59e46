"""Records for a cell of the failure matrix: all kinds of records, and their changes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from proxy.protocol.proofs import HopAuthenticator
from tests.support.records import Headers, Outgoing

PARTITIONS = 2
PLAIN, DELAYED, NAMED, RECALLED, MOVED, PURGED, PAUSED = 10, 20, 5, 4, 4, 6, 6
"""Number of records of each kind. As many named records are cancelled as are kept. The paused
number counts per paused target."""
FARTHEST_MS, HOUR_MS = 1_000, 3_600_000
FARTHEST: Final[Headers] = [("timer-delay", b"%d" % FARTHEST_MS)]
TAKEN_BACK: Final[Headers] = [("timer-delay", b"%d" % HOUR_MS)]


@dataclass(frozen=True, slots=True)
class MatrixRecords:
    """Records of one matrix cell. Each ingress partition already holds one record before them."""

    name: str
    ingress: str
    target: str
    paused: Sequence[str]
    signer: HopAuthenticator

    def all(self) -> Iterator[Outgoing]:
        """Yield all records. Some are due at once, so that the first transaction is not empty.
        Cancelled, recalled, moved and purged records come first. They are due long after the test.
        """
        yield from self._changed()
        for number in range(PLAIN):
            yield self.record(number)
        for target in self.paused:
            for number in range(PAUSED):
                yield asking(number, target)
        yield asking(0, f"{self.name}.none")
        for number in range(DELAYED):
            yield self.record(number, [("timer-delay", b"%d" % (FARTHEST_MS * number // DELAYED))])

    def record(self, number: int, more: Iterable[tuple[str, bytes | None]] = ()) -> Outgoing:
        return asking(number, self.target, more)

    def _changed(self) -> Iterator[Outgoing]:
        """Yield records that change. The first ones carry distinct numbers."""
        named = range(2 * NAMED)
        recalled = range(named.stop, named.stop + RECALLED)
        moved = range(recalled.stop, recalled.stop + MOVED)
        due_ms = int(time.time() * 1_000) + HOUR_MS
        for number in named:
            delay = TAKEN_BACK if number < NAMED else FARTHEST
            yield self.record(number, [*delay, ("timer-id", b"id-%d" % number)])
        for number in recalled:
            yield self.record(number, TAKEN_BACK)
        for number in moved:
            yield self.record(number, [("timer-deliver-at", b"%d" % due_ms)])
        for number in named[:NAMED]:
            yield _control(number, ("timer-cancel", b"id-%d" % number))
        for number in recalled:
            yield _control(number, ("timer-recall", self._origin(number)))
        for number in moved:
            yield self._move(number, due_ms)
        yield from self._purged(f"{self.name}.purged")

    def _origin(self, number: int) -> bytes:
        partition, behind_the_first = number % PARTITIONS, 1 + number // PARTITIONS
        return f"{self.ingress}/{partition}/{behind_the_first}".encode()

    def _move(self, number: int, due_ms: int) -> Outgoing:
        """Return the replacement of a pending record, as the API writes it. It is due now."""
        origin, record = self._origin(number), self.record(number)
        offset = origin.rpartition(b"/")[2]
        headers: Headers = [
            *record.headers,
            ("timer-deliver-at", b"0"),
            ("timer-hop-fires", b"%d" % due_ms),
            ("timer-hop-due", b"%d" % due_ms),
            ("timer-hop-from", offset),
            ("timer-hop-first", offset),
            ("timer-first-origin", origin),
        ]
        return self._signed(replace(record, headers=headers))

    def _purged(self, target: str) -> Iterator[Outgoing]:
        for number in range(PURGED):
            yield asking(number, target, TAKEN_BACK)
        for partition in range(PARTITIONS):
            purge = Outgoing(None, None, [("timer-purge", target.encode())], partition)
            yield self._signed(purge)

    def _signed(self, record: Outgoing) -> Outgoing:
        asked = list(record.headers)
        headers = self.signer.signed(record.partition, record.key, record.value, asked)
        return replace(record, headers=headers)


def asking(number: int, target: str, more: Iterable[tuple[str, bytes | None]] = ()) -> Outgoing:
    headers = [("timer-topic", target.encode()), *more]
    return Outgoing(b"%d" % number, b"value %d" % number, headers, number % PARTITIONS)


def _control(number: int, asked: tuple[str, bytes]) -> Outgoing:
    return Outgoing(b"%d" % number, b"", [asked], number % PARTITIONS)
