"""Where the changes of a register are at this moment."""

from collections.abc import Sequence

from storage.ids.links import Links
from storage.ids.memtable import Table
from storage.ids.runs.manifest import Manifest
from storage.ids.runs.run import Run
from storage.ids.tombstones import AllBuried
from storage.register import Key
from storage.store import Committed


class Holdings:
    """Each change is in `recent` (memory, filling), in `frozen` (memory, waiting until all of it
    is settled, then being written), or in `runs` and `written_links`, which the manifest names.

    settled: no change below it is still to come, and it is committed. covered: what the manifest
    says. floor: the highest committed one, so far as it was told. is_closing: `recent` is to be
    frozen before it takes the changes of another offset."""

    def __init__(self, manifest: Manifest, runs: Sequence[Run], committed: Committed) -> None:
        self.runs = list(runs)
        self.recent = Table()
        self.frozen: Table | None = None
        self.is_closing = False
        self.covered = self.settled = manifest.covered
        self.floor = 0
        self.ended: Key = (committed.watermark_ms, committed.cursor)
        self.written_links = Links(manifest.links)
        self.links = Links(manifest.links)
        self.buried = AllBuried(self.ended)
        self.attach_buried()
        self.buried.count()

    @property
    def tables(self) -> list[Table]:
        """The tables, newest first."""
        return [self.recent] if self.frozen is None else [self.recent, self.frozen]

    @property
    def coverable(self) -> int:
        """What a manifest may say is covered when all but the tables is named by it."""
        return self.coverable_without(None)

    def coverable_without(self, written: Table | None) -> int:
        """The same when `written` is named by it, too."""
        tables = [table for table in self.tables if table is not written and table.first >= 0]
        return max(self.covered, min([self.settled, *(table.first for table in tables)]))

    def settle(self, settled_offset: int, floor: int) -> None:
        """Note what `Register.maintain` was told."""
        self.settled = max(self.settled, settled_offset)
        if floor > self.floor:
            self.floor = floor
            self.links.forget(floor)
            self.written_links.forget(floor)

    def freeze(self) -> None:
        """Let later changes go to a new table."""
        assert self.frozen is None
        self.frozen, self.recent = self.recent, Table()
        self.is_closing = False
        self.attach_buried()

    def attach_buried(self) -> None:
        """Tell the buried keys that they are in other tables or runs now."""
        self.buried.attach((table.buried for table in self.tables), self.runs)
