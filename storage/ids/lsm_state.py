"""Where the changes of a register are: in which memtable or run."""

from collections.abc import Sequence

from storage.ids.id_memtable import IdMemtable
from storage.ids.links import Links
from storage.ids.runs.manifest import Manifest
from storage.ids.runs.run import Run
from storage.ids.tombstones import Tombstones
from storage.register import Key
from storage.store import Committed


class LsmState:
    """Each change is in `active` (memory, filling), in `immutable` (memory, waiting until all of it
    is settled, then being written), or in `runs` and `written_links`, which the manifest names.

    settled: no change below it is still to come, and it is committed. covered: what the manifest
    says. floor: the highest committed one, so far as it was told. is_closing: `active` is to be
    closed before it takes the changes of another offset. is_flush_requested: `active` is to be
    closed though it is not full."""

    def __init__(
        self, manifest: Manifest, runs: Sequence[Run], committed: Committed, most_names: int
    ) -> None:
        self.seed = manifest.seed
        self.runs = list(runs)
        self.active = IdMemtable()
        self.immutable: IdMemtable | None = None
        self.is_closing = self.is_flush_requested = False
        self.covered = self.settled = manifest.covered
        self.floor = 0
        self.ended: Key = (committed.watermark_ms, committed.cursor)
        self.written_links = Links(manifest.links)
        self.links = Links(manifest.links)
        self.tombstones = Tombstones(self.ended, most_names)
        self.attach_tombstones()
        self.tombstones.count()

    @property
    def memtables(self) -> list[IdMemtable]:
        """The memtables, newest first."""
        return [self.active] if self.immutable is None else [self.active, self.immutable]

    @property
    def coverable(self) -> int:
        """What a manifest covers that names the runs and links of now."""
        return self.coverable_without(None)

    def coverable_without(self, written: IdMemtable | None) -> int:
        """The same for one that names a run made of the memtable `written`, too."""
        memtables = [
            memtable
            for memtable in self.memtables
            if memtable is not written and memtable.first >= 0
        ]
        return max(self.covered, min([self.settled, *(memtable.first for memtable in memtables)]))

    def settle(self, settled_offset: int, floor: int) -> None:
        """Raise what is settled and the floor; links of no use any more are forgotten."""
        self.settled = max(self.settled, settled_offset)
        self.floor = max(self.floor, floor)
        self.links.forget(self.floor, self.ended[0])
        self.written_links.forget(self.floor, self.ended[0])

    def close_active(self) -> None:
        """Let later changes go to a new memtable."""
        assert self.immutable is None
        self.immutable, self.active = self.active, IdMemtable()
        self.is_closing = self.is_flush_requested = False
        self.attach_tombstones()

    def attach_tombstones(self) -> None:
        """Tell the tombstones that they are in other memtables or runs now."""
        self.tombstones.attach((memtable.tombstones for memtable in self.memtables), self.runs)
