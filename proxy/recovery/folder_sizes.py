"""What folders take on disk, measured a little at a time: thousands of files take tens of
milliseconds, for which nothing that is due may wait."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

EVERY_S: Final = 10.0
LOOK_S: Final = 0.002
FILES_AT_ONCE: Final = 50


class FolderSizes:
    """Rounds over all files, EVERY_S from one end to the next begin. `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._sizes: Iterator[int] | None = None
        self._sum_bytes = 0
        self._next_s = now_s()

    def look(self, folders: Iterable[Path]) -> int | None:
        """Go on for about LOOK_S. What all take (holes in files not counted), once a round has
        come to its end; until then None. A round's folders are those of its begin."""
        if self._sizes is None:
            if self._now_s() < self._next_s:
                return None
            self._sizes, self._sum_bytes = _sizes(list(folders)), 0
        until_s = self._now_s() + LOOK_S
        for size_bytes in self._sizes:
            self._sum_bytes += size_bytes
            if self._now_s() > until_s:
                return None
        self._sizes, self._next_s = None, self._now_s() + EVERY_S
        return self._sum_bytes


def _sizes(folders: Iterable[Path]) -> Iterator[int]:
    """Of some files at a time. What has gone meanwhile takes nothing."""
    for top in folders:
        for folder, _, names in os.walk(top):
            for start in range(0, len(names), FILES_AT_ONCE):
                some = names[start : start + FILES_AT_ONCE]
                yield sum(_disk_bytes(Path(folder, name)) for name in some)


def _disk_bytes(file: Path) -> int:
    try:
        return file.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
