"""Records of a long run on disk, by ingress partition, so that one partition fits in memory."""

from __future__ import annotations

import marshal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from tests.support.oracle.committed_reader import Placed
from tests.support.records import Incoming

AT_ONCE: Final = 200
SIZE: Final = Struct("<q")
Row = tuple[object, ...]


class Spool:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[tuple[str, str], list[Row]] = defaultdict(list)
        folder.mkdir(parents=True)

    def put(self, partition: str, kind: str, placed: Placed) -> None:
        one = placed.record
        row = (one.partition, one.offset, one.key, one.value, one.headers, one.timestamp_ms)
        rows = self._waiting[partition, kind]
        rows.append((placed.topic, *row))
        if len(rows) >= AT_ONCE:
            self._write(partition, kind)

    def partitions(self) -> list[str]:
        return sorted({partition for partition, _ in self._waiting})

    def read(self, partition: str, kind: str) -> Iterator[Placed]:
        if (partition, kind) not in self._waiting:
            return
        self._write(partition, kind)
        with self._path(partition, kind).open("rb") as file:
            while size := file.read(SIZE.size):
                rows = file.read(*SIZE.unpack(size))
                for topic, *fields in marshal.loads(rows):  # noqa: S302 (written here)
                    yield Placed(topic, Incoming(*fields))

    def _write(self, partition: str, kind: str) -> None:
        rows = marshal.dumps(self._waiting[partition, kind])
        with self._path(partition, kind).open("ab") as file:
            file.write(SIZE.pack(len(rows)) + rows)
        self._waiting[partition, kind].clear()

    def _path(self, partition: str, kind: str) -> Path:
        return self._folder / f"{partition.replace('/', '-')}.{kind}"
