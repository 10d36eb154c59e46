"""A folder from before a reboot is checked and still serves."""

from pathlib import Path

import pytest

from storage.errors import StoreDamaged
from storage.folder import CHECKPOINT, boot_id, read_checkpoint
from tests.unit.storage.shards import committed, entries, opened
from tools.overload.other_boot import ANOTHER_BOOT, drop_page_cache, forget_boot


def _stored(folder: Path) -> None:
    store = opened(folder, committed(watermark_ms=-1))
    store.put(entries([50, 950, 20_000]))
    store.flush(3)
    store.close()


def test_a_checkpoint_of_another_boot_differs_in_that_alone(tmp_path: Path) -> None:
    _stored(tmp_path)
    before = read_checkpoint(tmp_path / CHECKPOINT)
    assert forget_boot(tmp_path) == 1
    after = read_checkpoint(tmp_path / CHECKPOINT)
    assert (before.boot_id, after.boot_id) == (boot_id(), ANOTHER_BOOT)
    after.boot_id = before.boot_id
    assert after.to_bytes() == before.to_bytes()


def test_what_waits_in_a_folder_of_another_boot_is_still_there(tmp_path: Path) -> None:
    _stored(tmp_path)
    forget_boot(tmp_path)
    drop_page_cache([tmp_path], whole_machine=False)
    store = opened(tmp_path, committed(watermark_ms=-1, next_offset=3))
    assert (store.report.aside, store.pending()) == (None, 3)
    store.close()


def test_damage_in_a_folder_of_another_boot_is_found_beside_delivery(tmp_path: Path) -> None:
    _stored(tmp_path)
    body = next(path for path in tmp_path.rglob("bodies/*") if path.stat().st_size)
    body.write_bytes(body.read_bytes()[:-1])
    forget_boot(tmp_path)
    store = opened(tmp_path, committed(watermark_ms=-1, next_offset=3))
    with pytest.raises(StoreDamaged):
        store.maintain(3, 64)
    store.close()
    store = opened(tmp_path, committed(watermark_ms=-1, next_offset=3))
    assert store.report.aside is not None
    store.close()
