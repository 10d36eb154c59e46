"""A shard's folder remembers that entries may lack bodies."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import DataDirUnusable
from proxy.protocol.position import LAST_OFFSET, Position
from proxy.recovery.local_state import LocalState, locked_data_dir, open_to_others
from storage.errors import StorageFull, StoreLocked
from storage.options import Options
from storage.store import Entry, Store

ENTRY: Entry = (1_000, 0, "orders", b"\x05")
START = Position.start(0, "digest", "id")
READ = replace(START, next_offset=1)
ENDED = replace(READ, watermark_ms=2_000, floor=1)
Opening = Callable[..., tuple[LocalState, Store]]


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    def opened(at: Position, *, stores_stubs: bool) -> tuple[LocalState, Store]:
        options = Options(slots=100)
        state = LocalState(tmp_path, "ingress", "id", options, stores_stubs=stores_stubs)
        return state, state.open(0, at)

    return opened


def test_a_folder_that_never_had_stubs_needs_no_reading_back(opening: Opening) -> None:
    state, store = opening(START, stores_stubs=False)
    store.close()
    assert not state.has_stubs(0)


def test_stubs_are_remembered_until_nothing_pends_that_may_be_one(opening: Opening) -> None:
    state, store = opening(START, stores_stubs=True)
    assert state.has_stubs(0)
    store.put([ENTRY])
    store.flush(1)
    store.close()
    state, store = opening(READ, stores_stubs=False)
    assert store.pending() == 1
    store.advance(2_000, LAST_OFFSET)
    store.flush(1)
    store.close()
    assert state.has_stubs(0)
    state, store = opening(ENDED, stores_stubs=False)
    assert store.pending() == 0
    store.close()
    assert not state.has_stubs(0)


def test_a_folder_shows_a_commit_only_once_there_was_one(opening: Opening) -> None:
    state, store = opening(START, stores_stubs=False)
    store.put([ENTRY])
    store.flush(1)
    store.close()
    assert not state.was_committed(0)
    state.mark_committed([0])
    assert state.was_committed(0)
    assert not state.was_committed(1)


def test_the_mark_of_stubs_stays_with_a_folder_that_is_put_aside(
    opening: Opening, tmp_path: Path
) -> None:
    state, store = opening(START, stores_stubs=True)
    store.put([ENTRY])
    store.flush(1)
    store.close()
    (tmp_path / "ingress-0@id" / "checkpoint").write_bytes(b"damaged")
    state, store = opening(READ, stores_stubs=False)
    store.close()
    assert not state.has_stubs(0)
    assert (tmp_path / "ingress-0@id.broken-1" / "stubs").exists()


def test_a_disk_that_takes_no_mark_leaves_the_folder_unlocked(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_mark: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("proxy.recovery.local_state._create_durably", refuse)
    with pytest.raises(StorageFull):
        opening(START, stores_stubs=True)
    monkeypatch.setattr("proxy.recovery.local_state.LOCK_WAIT_S", 0)
    try:
        opening(START, stores_stubs=False)[1].close()
    except StoreLocked:
        pytest.fail("the folder is still locked")


@pytest.mark.parametrize("below", [False, True])
def test_a_data_folder_that_cannot_be_written_is_said_with_a_remedy(
    tmp_path: Path, below: bool
) -> None:
    taken = tmp_path / "a-file"
    taken.touch()
    said = "cannot be written: .*Let the proxy's user write there, or choose another `data_dir`"
    with (
        pytest.raises(DataDirUnusable, match=said),
        locked_data_dir(taken / "data" if below else taken),
    ):
        pass


def test_a_shards_folder_that_cannot_be_made_is_retried_like_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(StorageFull, match="cannot write in"):
        LocalState(tmp_path / "data", "ingress", "id", Options()).open(0, START)


def test_a_forbidden_write_is_not_mended_by_space(tmp_path: Path) -> None:
    forbidden = PermissionError(13, "Permission denied")
    assert "Let the proxy's user write there" in str(StorageFull(tmp_path, forbidden))
    assert "Free some space" in str(StorageFull(tmp_path, OSError(28, "No space left on device")))


def test_a_write_that_finds_no_inode_is_not_mended_by_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes a missing folder. File systems without an inode limit never run out."""
    full = OSError(errno.ENOSPC, "No space left on device")
    for inodes, said in ((20, "no inode is free (df -i)"), (0, "No space left on device")):
        left = os.statvfs_result((4096, 4096, 1000, 900, 900, inodes, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _folder, left=left: left)
        assert said in str(StorageFull(tmp_path / "shard", full))


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EMFILE, "Raise the limit of open files"),
        (errno.EDQUOT, "raise the quota"),
        (errno.EIO, "Check the disk"),
    ],
)
def test_the_remedy_is_for_what_the_system_has_refused(
    tmp_path: Path, number: int, remedy: str
) -> None:
    assert remedy in str(StorageFull(tmp_path, OSError(number, os.strerror(number))))


def test_a_data_folder_that_finds_no_room_is_not_mended_by_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DataDirUnusable) as refused, locked_data_dir(tmp_path / "data"):
        pass
    assert "Free some space, or choose" in refused.value.remedy


def test_a_folder_from_before_the_watermark_was_set_back_is_put_aside(opening: Opening) -> None:
    _state, store = opening(START, stores_stubs=False)
    store.put([ENTRY])
    store.flush(1)
    store.close()
    _state, store = opening(READ.with_watermark_set_back(), stores_stubs=False)
    assert store.pending() == 0
    store.close()


def test_what_an_older_version_left_open_to_other_users_is_closed_at_the_start(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    for folder in ("timer.ingress-0@abc/bodies", "timer.ingress-0@abc.broken-1"):
        (data_dir / folder).mkdir(parents=True)
    files = [data_dir / "lock", *(data_dir / "timer.ingress-0@abc" / name for name in "ab")]
    for path in files:
        path.touch()
    everything = [data_dir, *data_dir.rglob("*")]
    for path in everything:
        path.chmod(0o2775 if path.is_dir() else 0o664)
    assert set(open_to_others(data_dir)) == set(everything)
    with locked_data_dir(data_dir):
        modes = {path.stat().st_mode & 0o7777 for path in everything}
    assert modes == {0o2700, 0o600}
    assert not list(open_to_others(data_dir))


def test_what_is_not_the_proxys_own_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "orders.csv"
    shard = tmp_path / "timer.ingress-12@abc"
    other.touch()
    other.chmod(0o644)
    shard.mkdir()
    shard.chmod(0o755)
    tmp_path.chmod(0o755)
    (tmp_path / "timer.ingress-1@link").symlink_to(other)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with locked_data_dir(tmp_path):
        assert shard.stat().st_mode & 0o777 == 0o755, "another user's, as a volume's root may be"
    monkeypatch.undo()
    with locked_data_dir(tmp_path):
        found = [path.stat().st_mode & 0o777 for path in (tmp_path, other, shard)]
    assert found == [0o755, 0o644, 0o700]
