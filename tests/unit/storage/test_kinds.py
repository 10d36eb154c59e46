"""Every kind of store keeps its folder, remembers its kind, and puts it aside."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import randbytes
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest

from storage.errors import StorageFull, StoreLocked, StoreMismatch
from storage.folder import kind_of
from storage.opening import dump, verify
from storage.options import KINDS, StoreKind
from storage.store import NO_COUNTS, Store
from tests.unit.storage.shards import (
    START_MS,
    TINY,
    committed,
    crashed,
    entries,
    entry,
    opened_kind,
    taken,
)

pytestmark = pytest.mark.parametrize("kind", KINDS)


def filled(kind: StoreKind, folder: Path, count: int = 100) -> None:
    store = opened_kind(kind, folder)
    store.put(entries(range(1, count + 1)))
    store.flush(count)
    store.close()


def test_what_was_flushed_is_there_again(kind: StoreKind, tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    filled(kind, folder)
    store = opened_kind(kind, folder, committed(next_offset=100))
    assert (store.report.state, store.covered, store.pending()) == ("reopened", 100, 100)
    assert taken(store, 100, limit=7) == entries(range(1, 101))
    store.close()


def test_a_store_given_up_while_it_is_read_again_covers_only_what_it_was_given(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder, at = tmp_path / "shard", committed(next_offset=100)
    store = opened_kind(kind, folder, at)
    store.flush(0)
    store.close()
    store = opened_kind(kind, folder, at)
    assert store.covered == 0
    store.put(entries(range(1, 11)))
    store.maintain(10, 1_000)
    store.flush(10)
    store.close()
    store = opened_kind(kind, folder, at)
    assert (store.covered, store.pending()) == (10, 10)
    store.close()


def test_a_folder_is_one_process_s(kind: StoreKind, tmp_path: Path) -> None:
    store = opened_kind(kind, tmp_path / "shard")
    with pytest.raises(StoreLocked):
        opened_kind(kind, tmp_path / "shard")
    store.close()
    opened_kind(kind, tmp_path / "shard").close()


def test_a_folder_remembers_its_kind(kind: StoreKind, tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    filled(kind, folder)
    assert kind_of(folder) == kind
    other = KINDS[KINDS.index(kind) - 1]
    with pytest.raises(StoreMismatch, match=f"made with store = {kind}, but now it is {other}"):
        opened_kind(other, folder)
    store = opened_kind(other, folder, committed(next_offset=100), rebuild=True)
    assert (store.report.state, store.covered, store.pending()) == ("put aside", 0, 0)
    assert kind_of(tmp_path / "shard.broken-1") == kind
    store.close()
    assert kind_of(folder) in {None, other}


@pytest.mark.parametrize(
    "at", [committed(next_offset=99), committed(watermark_ms=-1, next_offset=100)]
)
def test_a_folder_ahead_of_the_broker_is_put_aside(
    kind: StoreKind, tmp_path: Path, at: object
) -> None:
    folder = tmp_path / "shard"
    filled(kind, folder)
    store = opened_kind(kind, folder, at)  # type: ignore[arg-type]
    assert (store.report.state, store.covered, store.pending()) == ("put aside", 0, 0)
    store.close()


def test_what_ended_elsewhere_is_counted_out_on_opening(kind: StoreKind, tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    filled(kind, folder)
    at = committed(watermark_ms=60, cursor=10**9, floor=60, next_offset=500)
    store = opened_kind(kind, folder, at)
    assert store.covered == 100
    assert taken(store, 1000) == entries(range(1, 101))[60:]
    assert store.pending() == 0
    store.close()


def test_large_bodies_come_a_few_at_a_time(kind: StoreKind, tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    filled(kind, folder)
    store = opened_kind(kind, folder, committed(next_offset=100))
    found = store.due(START_MS + 100, 1000, 300)
    assert 1 < len(found.entries) < 40
    assert not found.is_all
    assert 0 < store.peeked_bytes <= 300 + len(b"value 100")
    assert taken(store, 100) == entries(range(1, 101))
    store.close()


def test_what_the_floor_has_passed_is_not_given_out(kind: StoreKind, tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    filled(kind, folder)
    store = opened_kind(kind, folder, committed(floor=40, next_offset=100))
    assert taken(store, 1000) == entries(range(1, 101))[40:]
    assert store.pending() == 0
    store.close()


def test_what_the_floor_has_passed_is_counted_out_once_though_the_store_is_opened_again(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder = tmp_path / "shard"
    filled(kind, folder)
    store = opened_kind(kind, folder, committed(floor=40, next_offset=100))
    assert store.due(START_MS + 41, 1).entries == [entry(41, 40)]
    store.put([entry(500, 100)])
    store.flush(101)
    store.close()
    assert verify(folder).findings == []
    store = opened_kind(kind, folder, committed(floor=40, next_offset=101))
    assert taken(store, 1000) == [*entries(range(1, 101))[40:], entry(500, 100)]
    assert (store.pending(), store.pending_by_target()) == (0, NO_COUNTS)
    store.close()


def test_verify_and_dump_read_any_kind(kind: StoreKind, tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    assert verify(folder).findings == []
    filled(kind, folder)
    verdict = verify(folder)
    assert (verdict.findings, verdict.pending, verdict.covered) == ([], 100, 100)
    assert verdict.pending_by_target == ({"orders": 100}, 0)
    rows = list(dump(folder))
    assert [row["offset"] for row in rows] == list(range(100))
    assert [tuple(row.values()) for row in rows] == entries(range(1, 101))


FILL_FOREVER = """
import sys
from pathlib import Path
from storage.options import Options
from storage.store import Store
from tests.unit.storage.shards import entries, opened_kind
options = Options(slots=1000, memtable_entries=500)
store = opened_kind(sys.argv[1], Path(sys.argv[2]), options=options)
store.put(entries([10**6] * 20_000))
store.flush(20_000)
for first in range(20_000, 10**7, 100):
    store.put(entries(range(first, first + 100), first))
    store.maintain(first + 100, 200)
    print(first + 100, flush=True)
"""


@pytest.mark.parametrize("after_puts", [1, 60, 700])
def test_a_killed_process_loses_nothing_below_what_is_covered(
    kind: StoreKind, tmp_path: Path, after_puts: int
) -> None:
    folder = tmp_path / "shard"
    command = [sys.executable, "-c", FILL_FOREVER, kind, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(after_puts):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    said = process.stdout.read().split()
    process.wait()
    end = int(said[-1]) + 100 if said else 10**7
    options = replace(TINY, slots=1000, precision_ms=1000, segment_bytes=16 * 1024 * 1024)
    store = opened_kind(kind, folder, committed(next_offset=end), options=options)
    covered = store.covered
    assert store.report.state == "reopened"
    assert 20_000 <= covered <= end
    found = taken(store, 10**8, limit=5000)
    wanted = [entry(10**6, offset) for offset in range(20_000)]
    wanted += entries(range(20_000, covered), 20_000)
    assert found == sorted(wanted)
    store.close()


def test_a_full_disk_keeps_what_it_could_not_write(
    kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shard"
    store = opened_kind(kind, folder)
    store.put(entries(range(1, 101)))
    refuse_writes(kind, store, monkeypatch)
    with pytest.raises(StorageFull, match="Free some space"):
        maintain_long(store)
    assert store.due(START_MS + 100, 1000).entries == entries(range(1, 101))
    monkeypatch.undo()
    store.flush(100)
    assert store.covered == 100
    store.close()
    assert verify(folder).pending == 100


def test_a_disk_that_is_full_when_a_store_is_closed_leaves_it_free_to_be_opened_again(
    kind: StoreKind, tmp_path: Path
) -> None:
    folder = tmp_path / "shard"
    store = opened_kind(kind, folder)
    store.put([(START_MS + 1, offset, "orders", randbytes(4_000)) for offset in range(20)])
    with files_of_at_most(8_192):
        with pytest.raises(StorageFull, match="Free some space"):
            store.flush(20)
        with suppress(StorageFull):
            store.close()
    store = opened_kind(kind, folder)
    assert store.covered == 0
    store.close()


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    before, most = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (size_bytes, most))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, (before, most))


def maintain_long(store: Store) -> None:
    for _ in range(100):
        store.maintain(100, 100)


def refuse_writes(kind: StoreKind, store: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if kind == "rocksdb":
        monkeypatch.setattr(database := store._tier.database, "_db", Refusing(database._db))  # type: ignore[attr-defined]
    else:
        monkeypatch.setattr("storage.folder.Files.write", refuse)


class Refusing:
    def __init__(self, database: object) -> None:
        self._database = database

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    def write(self, *_: object) -> None:
        raise Exception("IO error: No space left on device: While appending to file")  # noqa: TRY002


def test_what_still_waits_in_memory_is_not_called_covered(kind: StoreKind, tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    store = opened_kind(kind, folder)
    store.put(entries(range(1000, 1020)))
    store.maintain(20, 1000)
    store.put(entries(range(1000, 1005), 20))
    for _ in range(50):
        store.maintain(25, 1000)
    assert store.covered == 20
    crashed(store, folder)
    again = opened_kind(kind, folder, committed(next_offset=25))
    assert again.covered <= 20
    assert taken(again, 2000) == entries(range(1000, 1020))[: again.covered]
    again.close()
