"""Folder sizes on disk, measured in small steps."""

from __future__ import annotations

import shutil
from pathlib import Path

from proxy.recovery.local_state import EVERY_S, LOOK_S, FolderSizes


class World:
    """Two folders, and a clock that advances at every look."""

    def __init__(self, folder: Path, step_s: float) -> None:
        self.now_s, self._step_s = 100.0, step_s
        self.folders = [folder / "a", folder / "b"]
        for top in self.folders:
            (top / "inner").mkdir(parents=True)
            for number in range(2):
                (top / "inner" / str(number)).write_bytes(bytes(5_000))
        self.sizes = FolderSizes(self._now_s)

    def _now_s(self) -> float:
        self.now_s += self._step_s
        return self.now_s

    def look(self) -> int | None:
        return self.sizes.look(self.folders)

    def real_bytes(self) -> int:
        files = [file for top in self.folders for file in top.rglob("*") if file.is_file()]
        return sum(file.stat().st_blocks * 512 for file in files)


def test_all_files_are_counted_when_there_is_time(tmp_path: Path) -> None:
    world = World(tmp_path, step_s=0)
    assert world.look() == world.real_bytes()
    assert world.look() is None
    world.now_s += EVERY_S
    assert world.look() == world.real_bytes()


def test_a_look_ends_in_time_and_the_next_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, step_s=2 * LOOK_S)
    found = [world.look() for _ in range(5)]
    assert found == [None] * 4 + [world.real_bytes()]


def test_what_goes_meanwhile_takes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, step_s=2 * LOOK_S)
    whole = world.real_bytes()
    assert world.look() is None
    shutil.rmtree(world.folders[1])
    (world.folders[0] / "inner" / "0").unlink()
    found = [world.look() for _ in range(3)]
    assert 0 < next(one for one in found if one is not None) < whole
