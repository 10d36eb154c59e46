"""When the next transaction may begin, and how many records it may hold.

Times are of the monotonic clock, in ms.
"""

from collections import deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from proxy.dispatch.rate_limit import WorkerRateLimit
from proxy.kafka.ingress.ingress import FETCH_RECORDS
from proxy.publishing.throttling import RECORD_BYTES, Throttling

IDLE_COMMIT_MS: Final = 10_000
"""An idle shard's watermark is committed this often, so that it is seen to move."""
IDLE_AT_ONCE: Final = 64
"""So many with one transaction: to plan a shard takes a tenth of a millisecond."""
LATEST_PROGRESS_MS: Final = 500
"""How far shards were read is committed this often at least, whatever transactions others make."""
BUSY_RECORDS: Final = 32
BUSY_INTERVAL_MS: Final = 10
"""After a transaction with so many records the next begins this much later at the soonest: each
costs the broker as much as hundreds of records."""
AMPLE_RECORDS: Final = 500
AMPLE_RECORDS_A_MS: Final = 64
LONGEST_INTERVAL_MS: Final = 50
"""Beyond the first number the second adds a millisecond, up to the third: the cores have to be
shared with the broker."""
FIRST_RECORDS: Final = 2_000
"""A transaction holds so many, or twice what the last one held: the first records of a burst do
not wait for a long transaction."""
FETCHED_A_SHARD: Final = 10
"""A turn costs something for each shard that has to do, whatever it brings: a fetch brings at least
so many for each, as far as one transaction can hold them, since all may be due."""
LONG_TRANSACTION_S: Final = 3.0
"""A third of what the broker grants (transaction.timeout.ms): for each partition that is written to
it has as much to do as for hundreds of records."""
LEAST_RECORDS: Final = 1_000
"""Fewer make no transaction much shorter: then the broker is slow, or far away."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds of one transaction (settings `release`)."""

    transaction_records: int = 10_000
    transaction_interval_ms: int = 50


class Pacing:
    """Decides on the time and the size of one worker's transactions.

    `rate` bounds how many records end a second, `throttling` knows what the broker's quotas let
    through.
    """

    def __init__(
        self, limits: TransactionLimits, rate: WorkerRateLimit, throttling: Throttling | None = None
    ) -> None:
        self._limits, self._rate = limits, rate
        self._throttling = throttling or Throttling()
        self._began_ms = self._progress_ms = self._idle_ms = -IDLE_COMMIT_MS
        self._idle: deque[int] = deque()
        self._interval_ms = 0
        self._twice_the_last = 0
        self._largest = FIRST_RECORDS

    @property
    def is_gathering(self) -> bool:
        """Whether records are gathered for a while before the next transaction."""
        return self._interval_ms > 0

    @property
    def is_busy(self) -> bool:
        """Whether records flow: the last transaction held more than a few."""
        return self._twice_the_last >= 2 * BUSY_RECORDS

    @property
    def largest_records(self) -> int:
        """How many records any transaction may hold, by the time that the last ones took."""
        most_throttled = max(1, self.most_bytes // RECORD_BYTES)
        return min(self._limits.transaction_records, self._largest, most_throttled)

    @property
    def most_bytes(self) -> int:
        """How many bytes any transaction may hold under the broker's quotas."""
        return self._throttling.most_bytes

    @property
    def next_records(self) -> int:
        """How many records the next transaction may hold."""
        return min(self.largest_records, max(FIRST_RECORDS, self._twice_the_last))

    def fetch_records(self, shards: int) -> int:
        """How many records to fetch in a turn in which so many shards have to do."""
        return max(FETCH_RECORDS, min(FETCHED_A_SHARD * shards, self.largest_records))

    def records_available(self, ending: int, elapsed_ms: int) -> int:
        """How many more records the rate lets end than `ending`, which are to end in any case."""
        if self.rate_wait_ms(elapsed_ms):
            return 0
        return self._rate.records_available(elapsed_ms) - ending

    def may_begin(self, elapsed_ms: int) -> bool:
        """Whether the last transaction began long enough ago, and the broker does not throttle."""
        return elapsed_ms - self._began_ms >= self._interval_ms and not self.is_throttled

    @property
    def is_throttled(self) -> bool:
        """Whether a transaction that begins now would wait for a quota."""
        return self._throttling.wait_ms() > 0

    @property
    def is_reading_throttled(self) -> bool:
        """Whether the broker has lately throttled a consumer."""
        return self._throttling.is_reading_recent

    def is_worth_it(self, records: int, elapsed_ms: int, *, has_moved: bool) -> bool:
        """Whether to commit a shard now: records at once, mere progress now and then."""
        return records > 0 or (has_moved and self._is_progress_due(elapsed_ms))

    def take_idle(self, partitions: Iterable[int], elapsed_ms: int) -> AbstractSet[int]:
        """Shards to be committed now whatever has become of them: each of these partitions'
        before long, some with each transaction. None before one may begin."""
        if not self.may_begin(elapsed_ms):
            return frozenset()
        if elapsed_ms - self._idle_ms >= IDLE_COMMIT_MS:
            self._idle_ms, self._idle = elapsed_ms, deque(partitions)
        return {self._idle.popleft() for _ in range(min(IDLE_AT_ONCE, len(self._idle)))}

    def begin(self, records: int, elapsed_ms: int, unrated: int = 0, size_bytes: int = 0) -> None:
        """A transaction of so many records has begun; `unrated` of them no rate counts. It holds
        the progress of all shards where that was due. size_bytes: of the bodies in it."""
        self._throttling.begin(size_bytes + records * RECORD_BYTES)
        self._rate.take(records - unrated, elapsed_ms)
        self._interval_ms = self._interval_after(records)
        self._twice_the_last = 2 * records
        if self._is_progress_due(elapsed_ms):
            self._progress_ms = elapsed_ms
        self._began_ms = elapsed_ms

    def committed(self, took_s: float) -> None:
        """The transaction that began last is committed. After a long one the next is half as large,
        otherwise it may be twice as large as any before."""
        self._throttling.committed(took_s)
        if took_s > LONG_TRANSACTION_S:
            self._largest = max(LEAST_RECORDS, self._twice_the_last // 4)
        else:
            self._largest = min(self._limits.transaction_records, 2 * self._largest)

    def throttled(self) -> None:
        """The transaction that began last was given up, since the broker throttles."""
        self._throttling.given_up()

    def wait_ms(self, elapsed_ms: int) -> int:
        """How long the next transaction is waited for; below 0 when it could have begun."""
        return self._began_ms + self._interval_ms - elapsed_ms

    def rate_wait_ms(self, elapsed_ms: int) -> int:
        """How long the rate, or a broker that throttles, lets nothing through."""
        return max(self._rate.wait_ms(elapsed_ms), self._throttling.wait_ms())

    def _is_progress_due(self, elapsed_ms: int) -> bool:
        """Soon where there are no other transactions; those that others make hold it less often,
        since each shard costs them a plan."""
        interval_ms = self._limits.transaction_interval_ms
        is_quiet = elapsed_ms - self._began_ms >= interval_ms
        return is_quiet or elapsed_ms - self._progress_ms >= max(interval_ms, LATEST_PROGRESS_MS)

    def _interval_after(self, records: int) -> int:
        """A transaction that was full has a backlog behind it, which must not wait."""
        if not BUSY_RECORDS <= records < self.next_records:
            return 0
        beyond_ms = max(0, records - AMPLE_RECORDS) // AMPLE_RECORDS_A_MS
        return min(LONGEST_INTERVAL_MS, BUSY_INTERVAL_MS + beyond_ms)
