"""The wheel's progress in the log is noted, so that the next opening does not store it again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from storage.folder import Files
from storage.store import Entry
from storage.wheel.wheel import SLOT, STORED_TO
from tests.unit.storage.shards import committed, entries, opened, taken


class ForgetfulFiles(Files):
    def replace(self, path: Path, data: bytes) -> None:
        if path.name == STORED_TO:
            raise OSError("no space left on device")
        super().replace(path, data)


def flushed(folder: Path, files: Files | None = None) -> list[Entry]:
    made = entries([500, 900])
    store = opened(folder, files=files or Files())
    store.put(made)
    store.flush(2)
    store.close()
    return made


def emptied_wheel(folder: Path) -> None:
    np.memmap(folder / "wheel", SLOT, "r+")[:] = np.zeros(1, SLOT)


def state_once_reopened(folder: Path, made: list[Entry]) -> str:
    store = opened(folder, committed(next_offset=2))
    state = store.report.state
    assert taken(store, 1000) == (made if state == "reopened" else [])
    store.close()
    return state


def test_runs_that_the_wheel_has_are_not_stored_again(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    made = flushed(folder)
    emptied_wheel(folder)
    assert state_once_reopened(folder, made) == "put aside"


def test_after_a_restart_of_the_machine_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shard"
    made = flushed(folder)
    emptied_wheel(folder)
    monkeypatch.setattr("storage.wheel.tier.boot_id", lambda: "another")
    assert state_once_reopened(folder, made) == "reopened"


@pytest.mark.parametrize("noted", [b"", b"-5", b"half", b"\xff", b"9" * 30, None])
def test_note_that_is_none_counts_for_nothing(tmp_path: Path, noted: bytes | None) -> None:
    folder = tmp_path / "shard"
    made = flushed(folder)
    emptied_wheel(folder)
    if noted is None:
        (folder / STORED_TO).unlink()
    else:
        (folder / STORED_TO).write_bytes(noted)
    assert state_once_reopened(folder, made) == "reopened"


def test_without_room_for_the_note_all_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    made = flushed(folder, ForgetfulFiles())
    assert not (folder / STORED_TO).exists()
    emptied_wheel(folder)
    assert state_once_reopened(folder, made) == "reopened"


def test_flush_after_the_last_note_is_stored_again(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    made = flushed(folder)
    store = opened(folder, committed(next_offset=2), files=ForgetfulFiles())
    more = entries([700], first_offset=2)
    store.put(more)
    store.flush(3)
    store.close()
    slots = np.memmap(folder / "wheel", SLOT, "r+")
    newest = int(slots["last"].argmax())
    slots[newest] = np.zeros(1, SLOT)[0]
    store = opened(folder, committed(next_offset=3))
    assert store.report.state == "reopened"
    assert taken(store, 1000) == sorted(made + more)
    store.close()
