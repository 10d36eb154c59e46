"""Memory is returned rarely, once the load is low."""

from __future__ import annotations

from pathlib import Path

from proxy.session.session import CALM_FOR_S, FEW_RECORDS, TRIMS, FreedMemory


class Calls:
    """C library that counts calls, and a clock that advances by a look's time."""

    def __init__(self) -> None:
        self.trims, self.now_s = 0, 100.0
        self.memory = FreedMemory(self._trim)

    def _trim(self) -> None:
        self.trims += 1

    def look(self, read_to: int, *, is_busy: bool = False) -> int:
        self.now_s += CALM_FOR_S
        self.memory.look(self.now_s, read_to, is_busy=is_busy)
        return self.trims


def test_it_is_given_back_where_little_was_read() -> None:
    calls = Calls()
    reads = [5_000, 10_000, 10_000, 10_000 + FEW_RECORDS - 1, 10_999 + FEW_RECORDS, 11_999]
    assert [calls.look(read_to) for read_to in reads] == [0, 0, 1, 2, 2, 3]


def test_while_much_is_delivered_it_is_kept() -> None:
    calls = Calls()
    assert calls.look(0, is_busy=True) == 0
    assert calls.look(0) == 1
    assert calls.look(0, is_busy=True) == 1
    assert calls.look(0) == 2


def test_as_long_as_nothing_more_comes_it_is_given_back_a_few_times() -> None:
    calls = Calls()
    given = [calls.look(0) for _ in range(2 * TRIMS)]
    assert given == [min(look, TRIMS) for look in range(1, 2 * TRIMS + 1)]
    calls.look(50_000)
    assert calls.look(50_000) == TRIMS + 1


def test_partitions_that_go_are_no_work() -> None:
    calls = Calls()
    calls.look(90_000)
    assert calls.look(20_000) == 1


def test_between_looks_nothing_is_done() -> None:
    calls = Calls()
    calls.look(0, is_busy=True)
    calls.memory.look(calls.now_s + CALM_FOR_S / 2, 0, is_busy=False)
    assert calls.trims == 0


def test_this_machine_takes_less_memory_afterwards() -> None:
    """Small blocks surround a remaining one: otherwise the library returns memory itself."""
    blocks = [bytearray(1_000) for _ in range(100_000)]
    kept = blocks[-1]
    before = anonymous_kib()
    del blocks
    memory = FreedMemory()
    memory.look(100, 0, is_busy=False)
    assert anonymous_kib() < before - 50_000
    assert len(kept) == 1_000


def anonymous_kib() -> int:
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:"))
