"""Many records in one call: in flight at once, in bounded memory, each accounted for."""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final, NamedTuple

from proxy.client.errors import BatchFailed, ClientError, NotStored, QueueFull
from proxy.client.ingress_writer import IngressWriter
from proxy.client.receipt import Receipt
from proxy.client.request import DelayedRecord, delayed

MOST_IN_FLIGHT: Final = 10_000
MOST_IN_FLIGHT_BYTES: Final = 32 * 1024 * 1024


class _InFlight(NamedTuple):
    number: int
    future: Future[Receipt]
    size_bytes: int


class Batch:
    """One call's records: at most so many and so many bytes wait for the broker at any time.

    With `is_all_or_nothing` the first failure ends it; else it goes on with the next record,
    unless no record gets through at all.
    """

    def __init__(self, writer: IngressWriter, *, is_all_or_nothing: bool) -> None:
        self._writer = writer
        self._is_all_or_nothing = is_all_or_nothing
        self._in_flight: deque[_InFlight] = deque()
        self._in_flight_bytes = 0
        self._receipts: list[Receipt | None] = []
        self._failures: dict[int, ClientError] = {}

    def write(self, records: Iterable[DelayedRecord]) -> list[Receipt]:
        """Write them all and wait for all receipts, in order. Raises BatchFailed."""
        for record in records:
            self._receipts.append(None)
            if not self._write(len(self._receipts) - 1, record) or self._must_stop():
                break
        while self._in_flight:
            self._await_oldest()
        if self._failures:
            raise self._failed()
        return [receipt for receipt in self._receipts if receipt is not None]

    def _write(self, number: int, record: DelayedRecord) -> bool:
        """False when nothing gets through."""
        try:
            request = delayed(record)
            self._make_room(request.size_bytes)
            future = self._writer.write(request)
        except ClientError as error:
            self._failures[number] = error
            return not _ends_all(error)
        self._in_flight.append(_InFlight(number, future, request.size_bytes))
        self._in_flight_bytes += request.size_bytes
        return True

    def _make_room(self, size_bytes: int) -> None:
        while self._in_flight and (
            len(self._in_flight) >= MOST_IN_FLIGHT
            or self._in_flight_bytes + size_bytes > MOST_IN_FLIGHT_BYTES
        ):
            self._await_oldest()

    def _await_oldest(self) -> None:
        number, future, size_bytes = self._in_flight.popleft()
        self._in_flight_bytes -= size_bytes
        try:
            self._receipts[number] = future.result()
        except ClientError as error:
            self._failures[number] = error

    def _must_stop(self) -> bool:
        return bool(self._failures) and (
            self._is_all_or_nothing or any(map(_ends_all, self._failures.values()))
        )

    def _failed(self) -> BatchFailed:
        tried = len(self._receipts)
        if self._is_all_or_nothing:
            return BatchFailed([None] * tried, self._failures, "the whole batch was taken back")
        what = f"{len(self._failures)} of {tried} records are not stored"
        return BatchFailed(self._receipts, self._failures, what)


def _ends_all(error: ClientError) -> bool:
    """Whether the next record would fare no better: the queue stays full, the producer is done."""
    return isinstance(error, QueueFull) or (isinstance(error, NotStored) and error.error.fatal())
