"""The whole store against a sorted list, through laps, flushes, restarts and crashes."""

from __future__ import annotations

import errno
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.errors import StorageFull
from storage.folder import Files
from storage.opening import verify
from storage.options import StoreKind
from storage.store import Committed, Entry
from storage.tiered_store import TieredStore
from storage.wheel.tier import WheelTier
from storage.wheel.wheel import SLOT
from tests.unit.storage.shards import START_MS, TINY, crashed, opened_kind

LAP_MS = 800
NAMES = TINY.most_names + 3
DELAYS_MS = st.one_of(
    st.integers(1, 300),
    st.integers(1, 2 * LAP_MS),
    st.integers(1, 50 * LAP_MS),
    st.sampled_from([LAP_MS, 100, 3_600_000, 8 * 86_400_000, 366 * 86_400_000]),
)


class Killed(BaseException):
    """End of the process."""


class DyingFiles(Files):
    """Files that end the process at the n-th write of a kind, half done. `dies_at` arms it.

    "tear" sets only the fields `torn` of the last slot.
    """

    def __init__(self) -> None:
        self.dies_at = ("never", 0)
        self.death: BaseException = Killed()
        self.torn: list[str] = []
        self.is_read_only = False

    def _dies_now(self, kind: str) -> bool:
        armed, left = self.dies_at
        if kind == armed:
            self.dies_at = (armed, left - 1)
        return kind == armed and left == 1

    def write(self, fd: int, data: bytes | memoryview, position: int) -> None:
        if self._dies_now("write"):
            super().write(fd, memoryview(data)[: len(data) // 2], position)
            raise self.death
        super().write(fd, data, position)

    def poke(self, cells: Any, at: Any, rows: Any) -> None:
        if self._dies_now("poke"):
            super().poke(cells, at[::2], rows[::2])
            raise Killed
        if self._dies_now("tear"):
            super().poke(cells, at[:-1], rows[:-1])
            for name in self.torn:
                cells[name][at[-1]] = rows[name][-1]
            raise Killed
        super().poke(cells, at, rows)

    def rename(self, source: Path, target: Path) -> None:
        if self._dies_now("rename"):
            raise Killed
        super().rename(source, target)

    def resize(self, file: int | Path, size_bytes: int) -> None:
        if self.is_read_only and self.dies_at == ("write", 0):
            raise self.death
        if self._dies_now("resize"):
            raise Killed
        super().resize(file, size_bytes)

    def remove(self, path: Path) -> None:
        if self._dies_now("remove"):
            raise Killed
        super().remove(path)


class StoreAgainstModel(RuleBasedStateMachine):
    """Invariant: the store equals a sorted list of its pending entries, also after crashes."""

    kind: StoreKind

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name) / "shard"
        self.now_ms = START_MS
        self.ended = (START_MS, -1)
        self.next_offset = 0
        self.uncommitted: list[Entry] = []
        self.model: list[Entry] = []
        self.log: list[Entry] = []
        self.files = DyingFiles()
        self.store = self.open()

    def open(self) -> TieredStore:
        floor = min((e[1] for e in self.model), default=self.next_offset)
        at = Committed(*self.ended, floor, self.next_offset)
        self.files.dies_at = ("never", 0)
        store = opened_kind(self.kind, self.folder, at, files=self.files)
        assert store.report.state != "put aside", store.report
        assert store.covered <= self.next_offset
        again = [e for e in self.log if store.covered <= e[1] < self.next_offset]
        store.put([e for e in again if e[:2] > self.ended])
        return store

    @rule(
        delays_ms=st.lists(DELAYS_MS, min_size=1, max_size=30),
        gap=st.integers(0, 2000),
        late=st.booleans(),
    )
    def put(self, delays_ms: list[int], gap: int, late: bool) -> None:
        first = self.log[-1][1] + 1 if self.log else 0
        base_ms = self.ended[0] if late else max(self.now_ms, self.ended[0])
        fresh: list[Entry] = [
            (base_ms + delay, first + gap + at, f"t{delay % NAMES}", f"v{first + at}".encode())
            for at, delay in enumerate(delays_ms)
        ]
        self.store.put(fresh)
        self.log += fresh
        self.model = sorted(self.model + fresh)
        self.uncommitted += fresh

    @rule()
    def commit(self) -> None:
        if self.log:
            self.next_offset = self.log[-1][1] + 1
        self.uncommitted = []

    @rule(
        later_ms=st.one_of(st.integers(0, 500), st.integers(0, 20 * LAP_MS)),
        limit=st.integers(1, 40),
        share=st.floats(0, 1),
    )
    def fire(self, later_ms: int, limit: int, share: float) -> None:
        self.now_ms += later_ms
        expected = [e for e in self.model if e[0] <= self.now_ms][:limit]
        assert self.store.due(self.now_ms, limit).entries == expected
        self.commit()
        if expected:
            self.end(expected[int(share * (len(expected) - 1))][:2])

    @rule()
    def nothing_due_lets_the_watermark_pass(self) -> None:
        self.commit()
        if not any(e[0] <= self.now_ms for e in self.model):
            self.end(max(self.ended, (self.now_ms, self.next_offset)))

    @rule(days=st.integers(1, 400))
    def everything_ends_after_a_long_time(self, days: int) -> None:
        self.commit()
        self.now_ms += days * 86_400_000
        self.end((self.now_ms, self.next_offset))

    def end(self, key: tuple[int, int]) -> None:
        self.store.advance(*key)
        self.ended = key
        self.model = [e for e in self.model if e[:2] > key]

    @rule(ahead_ms=st.integers(0, 200))
    def look_ahead(self, ahead_ms: int) -> None:
        until_ms = self.now_ms + ahead_ms
        expected = min((e[0] for e in self.model if e[0] <= until_ms), default=None)
        assert self.store.next_fires_ms(until_ms) == expected

    @rule(budget=st.integers(1, 60), times=st.integers(1, 10))
    def maintain(self, budget: int, times: int) -> None:
        for _ in range(times):
            self.store.maintain(self.next_offset, budget)

    @rule()
    def flush(self) -> None:
        self.store.flush(self.next_offset)
        if not self.uncommitted:
            assert self.store.covered == self.next_offset
        assert verify(self.folder).findings == []

    @rule(others_went_on_ms=st.sampled_from([0, 0, 150, LAP_MS, 3 * LAP_MS]))
    def reopen(self, others_went_on_ms: int) -> None:
        self.lose_memory()
        if others_went_on_ms:
            self.now_ms = max(self.now_ms, self.ended[0]) + others_went_on_ms
            self.ended = (self.now_ms, self.next_offset)
            self.model = [e for e in self.model if e[:2] > self.ended]
        self.store = self.open()

    @rule(
        delays_ms=st.lists(DELAYS_MS, min_size=1, max_size=60),
        kind=st.sampled_from(
            ["write", "write", "rename", "poke", "poke", "tear", "tear", "resize", "remove"]
        ),
        nth=st.integers(1, 6),
        torn=st.lists(st.sampled_from(SLOT.names or ()), min_size=1, max_size=4),
        budget=st.integers(1, 100),
    )
    def crash_while_writing(
        self, delays_ms: list[int], kind: str, nth: int, torn: list[str], budget: int
    ) -> None:
        self.put(delays_ms, 0, late=False)
        self.commit()
        self.files.torn = torn
        self.files.dies_at = (kind, nth)
        with suppress(Killed):
            for _ in range(10):
                self.store.maintain(self.next_offset, budget)
            self.store.flush(self.next_offset)
        self.lose_memory()
        self.store = self.open()

    @rule(
        delays_ms=st.lists(DELAYS_MS, min_size=1, max_size=60),
        nth=st.integers(1, 8),
        budget=st.integers(1, 100),
        is_read_only=st.booleans(),
    )
    def find_the_disk_full(
        self, delays_ms: list[int], nth: int, budget: int, is_read_only: bool
    ) -> None:
        """Make writes fail. After the first failure the disk is read-only."""
        self.put(delays_ms, 0, late=False)
        self.commit()
        self.files.dies_at = ("write", nth)
        self.files.death = OSError(errno.ENOSPC, "No space left on device")
        self.files.is_read_only = is_read_only
        with suppress(StorageFull):
            for _ in range(10):
                self.store.maintain(self.next_offset, budget)
        self.files.death = Killed()
        self.files.dies_at = ("never", 0)

    def lose_memory(self) -> None:
        crashed(self.store, self.folder)
        assert verify(self.folder).findings == [] or not (self.folder / "checkpoint").exists()
        lost = {e[1] for e in self.uncommitted}
        self.log = [e for e in self.log if e[1] not in lost]
        self.model = [e for e in self.model if e[1] not in lost]
        self.uncommitted = []

    @invariant()
    def floor_is_never_above_a_pending_offset(self) -> None:
        lowest = min((e[1] for e in self.model), default=None)
        next_offset = self.log[-1][1] + 1 if self.log else self.next_offset
        floor = self.store.floor(next_offset)
        assert floor <= (next_offset if lowest is None else lowest)
        if self.settled():
            assert floor == next_offset if lowest is None else lowest - 1024 < floor

    @invariant()
    def counts_are_right(self) -> None:
        if self.settled():
            assert self.store.pending() == len(self.model)

    @invariant()
    def each_target_is_counted_exactly_or_among_the_others(self) -> None:
        if self.settled():
            counts, truth = self.store.pending_by_target(), Counter(e[2] for e in self.model)
            assert counts.by_name == {name: truth[name] for name in counts.by_name}
            assert counts.total == len(self.model)
            assert counts.others or counts.by_name == truth
            assert len(counts.by_name) <= TINY.most_names

    @invariant()
    def bytes_are_those_of_the_bodies_and_of_names_without_a_number(self) -> None:
        if self.settled():
            sizes, truth = self.store.pending_bytes_by_target(), Counter[str]()
            for _, _, target, body in self.model:
                is_named = not sizes.others or target in sizes.by_name
                truth[target] += len(body) + (0 if is_named else 2 + len(target.encode()))
            assert sizes.by_name == {name: truth[name] for name in sizes.by_name}
            assert sizes.total == truth.total() == self.store.pending_bytes()

    def settled(self) -> bool:
        tier = self.store._tier
        if not isinstance(tier, WheelTier):
            return True
        return tier.files.checkpoint.closed >= tier.loaded_from

    def teardown(self) -> None:
        self.store.close()
        self.home.cleanup()


class WheelAgainstModel(StoreAgainstModel):
    """Invariant: as above, for the timer wheel."""

    kind = "wheel"


class RocksAgainstModel(StoreAgainstModel):
    """Invariant: as above, for RocksDB. A crash loses its memtable."""

    kind = "rocksdb"


LONG_RUNS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
WheelAgainstModel.TestCase.settings = LONG_RUNS
RocksAgainstModel.TestCase.settings = LONG_RUNS
TestWheelAgainstModel = WheelAgainstModel.TestCase
TestRocksAgainstModel = pytest.mark.rest(RocksAgainstModel.TestCase)
