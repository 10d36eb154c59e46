"""Files of the register: full disks, damage, and checks on opening."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import StorageFull, StoreDamaged
from storage.ids.register import Register
from storage.options import IdOptions
from tests.unit.storage.ids.test_register_on_disk import (
    FAR_MS,
    files_of,
    ident,
    known,
    opened,
    pending,
    put_pending,
    work_through,
)
from tests.unit.storage.wheel.test_wheel_store import FullDisk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shard" / "ids"


def flush_for_ever(register: Register, settled_offset: int) -> None:
    while True:
        register.maintain(settled_offset, 0)
        register.flush(settled_offset, 0)


@pytest.mark.parametrize("room", range(14))
def test_a_full_disk_loses_nothing_and_is_tried_again(folder: Path, room: int) -> None:
    files = FullDisk(room)
    register = opened(folder, files=files)
    for offset in range(60):
        register.put(offset, ident(offset), pending(offset))
        register.add_tombstone(offset, (FAR_MS, offset), "orders")
    for _ in range(3):
        with pytest.raises(StorageFull, match="No space left"):
            flush_for_ever(register, 60)
        files.room = 0
        assert len(known(register, 60)) == 60
        assert len(register.tombstones((0, 0), (FAR_MS, 60))) == 60
    files.room = 10**9
    register.flush(60, 0)
    assert len(files_of(folder)) == 2
    register.close()
    register = opened(folder, next_offset=60)
    assert register.covered == 60
    assert known(register, 60) == {ident(number): pending(number) for number in range(60)}
    assert len(files_of(folder)) == 2


def filled(folder: Path) -> None:
    register = opened(folder)
    put_pending(register, range(100))
    register.add_tombstone(100, (FAR_MS, 100), "orders")
    register.flush(101, 0)
    register.close()


def newest_run(folder: Path) -> Path:
    return max(folder.glob("*.run"), key=lambda path: int(path.stem))


def test_a_register_ahead_of_the_broker_is_put_aside(folder: Path) -> None:
    filled(folder)
    register = opened(folder, next_offset=50)
    assert register.report.state == "put aside"
    assert "this offset was reset" in register.report.detail
    assert register.covered == 0
    assert not known(register, 100)
    assert (folder.parent / "ids.broken" / "manifest").exists()


def test_a_watermark_behind_what_was_forgotten_puts_the_register_aside(folder: Path) -> None:
    register = opened(folder)
    register.put(0, b"a", pending(0))
    register.advance(500, 3)
    register.flush(1, 0)
    register.close()
    assert opened(folder, next_offset=1, ended=(500, 3)).report.state == "reopened"
    assert "beyond" in opened(folder, next_offset=1, ended=(500, 2)).report.detail


def test_only_the_last_broken_register_is_kept(folder: Path) -> None:
    for _ in range(3):
        filled(folder)
        opened(folder, next_offset=50).close()
    assert sorted(path.name for path in folder.parent.iterdir()) == ["ids", "ids.broken"]


def test_a_bit_lost_when_the_machine_stopped_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(folder)
    path = newest_run(folder)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    monkeypatch.setattr("storage.ids.register.boot_id", lambda: "another")
    assert "fails the CRC" in opened(folder, next_offset=101).report.detail


@pytest.mark.parametrize("section", ["fires_ms", "offsets", "targets"])
def test_a_bit_flipped_in_a_tombstone_is_found_on_opening(folder: Path, section: str) -> None:
    """All are read on opening. A wrong one would end the process or hit another entry."""
    filled(folder)
    path = newest_run(folder)
    register = opened(folder, next_offset=101)
    place = register._lsm.runs[-1]._positions[section]
    register.close()
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    register = opened(folder, next_offset=101)
    assert f"fails the CRC of its {section}" in register.report.detail
    assert register.covered == 0


def test_an_intact_register_is_trusted_after_a_restart_of_the_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(folder)
    monkeypatch.setattr("storage.ids.register.boot_id", lambda: "another")
    register = opened(folder, next_offset=101)
    assert register.report.state == "reopened"
    assert len(known(register, 100)) == 100


def test_damage_met_while_merging_is_remembered(folder: Path) -> None:
    filled(folder)
    path = newest_run(folder)
    register = opened(folder, next_offset=101, options=IdOptions(merged_runs=2))
    hashes = register._lsm.runs[-1]._positions["hashes"]
    data = bytearray(path.read_bytes())
    data[hashes] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match="fails the CRC of its hashes"):
        work_through(register, 101)
    register.close()
    assert "fails the CRC of its hashes" in opened(folder, next_offset=101).report.detail


@pytest.mark.parametrize(
    ("section", "said"),
    [("rows", "a row that fails its checksum"), ("words", "does not match its hash")],
)
def test_damage_met_while_looking_up_is_remembered(folder: Path, section: str, said: str) -> None:
    filled(folder)
    path = newest_run(folder)
    run = opened(folder, next_offset=101)._lsm.runs[-1]
    data = bytearray(path.read_bytes())
    data[run._positions[section]] ^= 1
    path.write_bytes(data)
    register = opened(folder, next_offset=101)
    with pytest.raises(StoreDamaged, match=said):
        known(register, 101)
    assert said in opened(folder, next_offset=101).report.detail


def test_files_that_nothing_names_are_removed(folder: Path) -> None:
    filled(folder)
    before = files_of(folder)
    for name in ("77.run", "manifest.new"):
        (folder / name).write_bytes(b"half")
    opened(folder, next_offset=101)
    assert files_of(folder) == before
