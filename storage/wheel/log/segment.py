"""One file of the timer log: fixed size, written from the front, read through a mapping."""

import mmap
import os
from pathlib import Path

import numpy as np

from storage.options import RECORD_BYTES
from storage.shard.files import Files
from storage.wheel.log.records import RECORD, Rows


class Segment:
    """A log file of `size_bytes`. What is not written yet reads as zeros and takes no space.

    One that is too short is extended, or, if not writable, mapped as it is."""

    def __init__(
        self,
        path: Path,
        size_bytes: int,
        files: Files,
        *,
        create: bool = False,
        writable: bool = True,
    ) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._files = files
        flags = os.O_RDWR if writable else os.O_RDONLY
        flags |= os.O_CREAT | os.O_TRUNC if create else 0
        self._fd = os.open(path, flags, 0o644)
        try:
            if writable and os.fstat(self._fd).st_size != size_bytes:
                files.resize(self._fd, size_bytes)
            self.view = mmap.mmap(self._fd, 0, prot=mmap.PROT_READ)
        except BaseException:
            self.close()
            raise
        self.cells: Rows = np.frombuffer(self.view, RECORD, len(self.view) // RECORD_BYTES)
        """All of it as rows: headers are as long."""

    def write(self, offset: int, data: memoryview) -> None:
        """Write at `offset` in this file."""
        self._files.write(self._fd, data, offset)

    def cut(self, offset: int) -> None:
        """Make everything from `offset` on read as zeros."""
        self._files.resize(self._fd, offset)
        self._files.resize(self._fd, self.size_bytes)

    def close(self) -> None:
        """Give the file back; rows read from it stay readable."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
