"""Every write the engine does goes through here, so that a test can stop or refuse any of them."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt


class Files:
    """Plain writes. Nothing is synced: see storage/FORMAT.md, "What a power loss does"."""

    def write(self, fd: int, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at `position`."""
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, position)
            view = view[written:]
            position += written

    def resize(self, file: int | Path, size_bytes: int) -> None:
        """Cut or extend a file, open or not; what is extended reads as zeros and takes no space
        yet."""
        os.truncate(file, size_bytes)

    def allocate(self, fd: int, size_bytes: int) -> None:
        """Reserve space, so that writing through a mapping cannot meet a full disk."""
        os.posix_fallocate(fd, 0, size_bytes)

    def poke(
        self, cells: npt.NDArray[np.void], at: npt.NDArray[np.int64], rows: npt.NDArray[np.void]
    ) -> None:
        """Set `cells[at] = rows` in a mapped file, each item in one piece: numpy may copy field
        by field. A kill may tear an item nevertheless."""
        item = np.dtype((np.void, cells.dtype.itemsize))
        cells.view(item)[at] = rows.view(item)

    def replace(self, path: Path, data: bytes) -> None:
        """Give `path` new contents in one step."""
        fresh = path.with_name(path.name + ".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self.write(fd, data, 0)
        finally:
            os.close(fd)
        self.rename(fresh, path)

    def rename(self, source: Path, target: Path) -> None:
        """Move `source` over `target`."""
        source.rename(target)

    def remove(self, path: Path) -> None:
        """Delete a file nobody needs; one that stays is found again when the folder is opened."""
        with suppress(OSError):
            path.unlink()
