"""When a transaction begins, how large it is, and which shards a turn looks at. Times are of the
monotonic clock, in ms."""

from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from proxy.clock import Moment
from proxy.config.settings import ReleaseSettings
from proxy.dispatch.release_control import WorkerRateLimit
from proxy.kafka.ingress import FETCH_RECORDS
from proxy.publishing.throttling import RECORD_BYTES, Throttling
from proxy.scheduling.shard import Shard, State

IDLE_COMMIT_MS: Final = 10_000
"""Interval of commits of an idle shard, so that its committed watermark advances."""
IDLE_AT_ONCE: Final = 64
"""Largest number of idle shards in a transaction, because each plan takes 0.1 ms."""
LATEST_PROGRESS_MS: Final = 500
"""Longest time until a shard's read offsets are committed while other shards have records."""
BUSY_RECORDS: Final = 32
BUSY_INTERVAL_MS: Final = 10
"""Interval after BUSY_RECORDS or more. A transaction costs as much as hundreds of records."""
AMPLE_RECORDS: Final = 500
AMPLE_RECORDS_A_MS: Final = 64
LONGEST_INTERVAL_MS: Final = 50
"""Beyond AMPLE_RECORDS the interval grows to this limit, because fewer commits cost less CPU."""
FIRST_RECORDS: Final = 2_000
"""The first transaction of a burst has at most this many records, so that its commit is fast."""
FETCHED_A_SHARD: Final = 10
"""A fetch may take this many records for each shard with work. A turn costs time for each shard."""
LONG_TRANSACTION_S: Final = 3.0
"""Transactions shrink after a longer commit. The default transaction.timeout.ms is 10 s."""
UNBOUNDED: Final = 2**31
"""More records than any transaction asks for."""
LEAST_RECORDS: Final = 1_000
"""The limit falls no lower, because smaller transactions take as long with a distant broker."""


class Pacing:
    """Decides when one worker's transactions begin, and their size."""

    def __init__(
        self, limits: ReleaseSettings, rate: WorkerRateLimit, throttling: Throttling | None = None
    ) -> None:
        self._limits, self._rate = limits, rate
        self.throttling = throttling or Throttling()
        self._began_ms = self._progress_ms = self._idle_ms = -IDLE_COMMIT_MS
        self._idle: deque[int] = deque()
        self._interval_ms = self._last_records = self._last_bytes = 0
        self._largest = FIRST_RECORDS
        self.is_busy = self.is_gathering = self.is_light = False
        """`is_busy`: the last transaction held BUSY_RECORDS or more. `is_gathering`: the next
        transaction waits for more records. `is_light`: the same, after at most AMPLE_RECORDS."""

    @property
    def largest_records(self) -> int:
        """Limit for the records of a transaction, adapted to the duration of earlier commits."""
        most_throttled = max(1, self.throttling.most_bytes // RECORD_BYTES)
        return min(self._limits.transaction_records, self._largest, most_throttled)

    @property
    def next_records(self) -> int:
        return min(self.largest_records, max(FIRST_RECORDS, 2 * self._last_records))

    def fetch_records(self, shards: int) -> int:
        if FETCHED_A_SHARD * shards <= FETCH_RECORDS:
            return FETCH_RECORDS
        return max(FETCH_RECORDS, min(FETCHED_A_SHARD * shards, self.largest_records))

    def records_available(self, ending: int, elapsed_ms: int) -> int:
        """Return how many records the rate allows, besides `ending` records that end anyway."""
        rate = self._rate.limit
        if rate is None and not self.throttling.until_s:
            return UNBOUNDED - ending
        if self.rate_wait_ms(elapsed_ms):
            return 0
        return (UNBOUNDED if rate is None else rate.records_available(elapsed_ms)) - ending

    def may_begin(self, elapsed_ms: int) -> bool:
        """Return whether the interval is over, and a transaction would wait for no quota."""
        is_throttled = self.throttling.until_s > 0 and self.throttling.wait_ms() > 0
        return not is_throttled and elapsed_ms - self._began_ms >= self._interval_ms

    @property
    def is_reading_throttled(self) -> bool:
        return self.throttling.read_until_s > 0 and self.throttling.is_reading_recent

    def is_progress_due(self, elapsed_ms: int) -> bool:
        """Return whether to commit shards that only ingested records. Each such shard costs a plan,
        so these commits are rare."""
        interval_ms = self._limits.transaction_interval_ms
        is_quiet = elapsed_ms - self._began_ms >= interval_ms
        return is_quiet or elapsed_ms - self._progress_ms >= max(interval_ms, LATEST_PROGRESS_MS)

    def take_idle(self, partitions: Iterable[int], elapsed_ms: int) -> AbstractSet[int]:
        if elapsed_ms - self._idle_ms >= IDLE_COMMIT_MS:
            self._idle_ms, self._idle = elapsed_ms, deque(partitions)
        if not self._idle:
            return frozenset()
        return {self._idle.popleft() for _ in range(min(IDLE_AT_ONCE, len(self._idle)))}

    def begin(self, records: int, elapsed_ms: int, unrated: int = 0, size_bytes: int = 0) -> None:
        """Begin a transaction with bodies of `size_bytes`. No rate counts the `unrated` records.
        After a full transaction the next one need not wait, because more records wait."""
        if self._rate.limit is not None:
            self._rate.limit.take(records - unrated, elapsed_ms)
        self.is_busy = records >= BUSY_RECORDS
        self._interval_ms = 0
        if BUSY_RECORDS <= records < self.next_records:
            beyond_ms = max(0, records - AMPLE_RECORDS) // AMPLE_RECORDS_A_MS
            self._interval_ms = min(LONGEST_INTERVAL_MS, BUSY_INTERVAL_MS + beyond_ms)
        self.is_gathering = self._interval_ms > 0
        self.is_light = self.is_gathering and records <= AMPLE_RECORDS
        self._last_records, self._last_bytes = records, size_bytes + records * RECORD_BYTES
        if self.is_progress_due(elapsed_ms):
            self._progress_ms = elapsed_ms
        self._began_ms = elapsed_ms

    def committed(self, took_s: float) -> None:
        """Adapt the limit: half of this transaction after a long commit, else twice the limit."""
        if self.throttling.until_s:
            self.throttling.committed(self._last_bytes, self._began_ms / 1_000, took_s)
        if took_s > LONG_TRANSACTION_S:
            self._largest = max(LEAST_RECORDS, self._last_records // 2)
        else:
            self._largest = min(self._limits.transaction_records, 2 * self._largest)

    def throttled(self) -> None:
        self.throttling.given_up(self._last_bytes)

    def wait_ms(self, elapsed_ms: int) -> int:
        return self._began_ms + self._interval_ms - elapsed_ms

    def rate_wait_ms(self, elapsed_ms: int) -> int:
        """Return the time for which the rate, or a throttling broker, lets no record end."""
        rate, throttling = self._rate.limit, self.throttling
        rate_ms = 0 if rate is None else rate.wait_ms(elapsed_ms)
        return max(rate_ms, throttling.wait_ms()) if throttling.until_s else rate_ms


REST_MS: Final = 250
"""The longest rest of a shard. Operators' changes and file writes wait no longer than this."""
SPREAD_MS: Final = 125
SPREAD_BY: Final = 37
LOOKED_AT_TOGETHER: Final = 64
"""Groups of this many shards shorten their rests by different times up to SPREAD_MS, so that few
rests end in one turn."""


class RestingShards:
    """The shards without work. Turns leave them out, so that the cost grows with active shards
    only. Only a fetched record changes a resting shard, so its last `view` stays right. A tidy
    shard's store has nothing to do until the next commit."""

    def __init__(self) -> None:
        self._tidy: set[int] = set()
        self._until_ms: dict[int, int] = {}
        self._due_ms: dict[int, int] = {}

    def awake(self, shards: Mapping[int, Shard]) -> dict[int, Shard]:
        return {p: shard for p, shard in shards.items() if p not in self._until_ms}

    def untidy(self, awake: Mapping[int, Shard]) -> list[int]:
        return [partition for partition in awake if partition not in self._tidy]

    def wait_ms(self, elapsed_ms: int, at_most_ms: int) -> int:
        """Return the time until the first entry of a resting shard is due, at most `at_most_ms`."""
        if not self._due_ms:
            return at_most_ms
        return min(at_most_ms, min(self._due_ms.values()) - elapsed_ms)

    def let_rest(self, partition: int, shard: Shard, at: Moment) -> None:
        """Note that the store is tidy. Let the shard rest until an entry is due, if all its records
        are committed and no purge is swept. Entries in an uncommitted transaction are still due, so
        they end the rest immediately."""
        self._tidy.add(partition)
        has_work = shard.has_moved or shard.backlog or shard.ending or shard.is_sweeping
        if has_work or shard.state is not State.READY:
            return
        rest_ms = REST_MS - partition // LOOKED_AT_TOGETHER * SPREAD_BY % SPREAD_MS
        if shard.view.fires_ms <= at.now_ms + rest_ms:
            rest_ms = shard.view.fires_ms - at.now_ms
            self._due_ms[partition] = at.elapsed_ms + rest_ms
        self._until_ms[partition] = at.elapsed_ms + rest_ms

    def wake(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._tidy.discard(partition)
            self._until_ms.pop(partition, None)
            self._due_ms.pop(partition, None)

    def rested(self, elapsed_ms: float) -> list[int]:
        """Return the shards whose rest is over."""
        return [p for p, until_ms in self._until_ms.items() if until_ms <= elapsed_ms]
