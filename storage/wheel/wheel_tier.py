"""The wheel as a `DiskTier`: rows of near slots in memory, wheel, log and bodies on disk."""

from collections.abc import Callable, Iterator

from storage.shard.checkpoint import boot_id
from storage.shard.ledger import Ledger
from storage.shard.memory.due_histogram import DueHistogram, Piece
from storage.shard.memory.memtable import Memtable
from storage.store import Due, Key, Scanned, Wants
from storage.wheel.compaction import EndedElsewhere
from storage.wheel.flush import Flush
from storage.wheel.inspection.background_check import BackgroundCheck
from storage.wheel.loaded_rows import LoadedRows
from storage.wheel.slot_loader import SlotLoader
from storage.wheel.wheel_files import WheelFiles
from storage.wheel.wheel_scan import WheelScan

WHATEVER_IT_TAKES = 2**63
CHECKED_SHARE = 4
"""After a restart of the machine one record for so many of the budget is looked at besides."""


class WheelTier:
    """Slots are loaded shortly before their time, in order, and again given back in order.

    `loaded_from`: slot numbers below it had passed when the folder was opened."""

    def __init__(
        self, files: WheelFiles, ledger: Ledger, *, is_of_another_boot: bool = False
    ) -> None:
        """Raises StoreDamaged."""
        self.files = files
        self._ledger = ledger
        self._precision_ms = files.options.precision_ms
        self._rows = LoadedRows(files.entries_of)
        self._loader = SlotLoader(files, ledger, self._rows)
        self._scan = WheelScan(files, ledger)
        self.loaded_from = self._loader.next_slot
        self._ahead_slot = self.loaded_from + files.options.load_ahead_slots
        self._load_until(ledger.watermark_ms, WHATEVER_IT_TAKES)
        self._check = None
        if is_of_another_boot:
            self._check = BackgroundCheck(files, ledger)
            files.boot_id = files.checkpoint.boot_id

    @property
    def peeked_bytes(self) -> int:
        """What the bodies take that were peeked at."""
        return self._rows.peeked_bytes

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """The first entries due; loads slots up to `until_ms` until there are enough."""
        slot = self._load_until(until_ms, max_entries)
        self._ahead_slot = max(self._ahead_slot, slot + self.files.options.load_ahead_slots)
        return self._rows.peek(until_ms, max_entries, max_bytes)

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due; loads slots up to `until_ms` until there is an entry."""
        self._load_until(until_ms, 1)
        return self._rows.next_due_ms()

    def forget(self, ended: Key) -> None:
        """Count out what has ended; slots passed over are loaded for that."""
        self._load_until(ended[0], WHATEVER_IT_TAKES)
        entries, skipped = self._rows.forget(*ended)
        if entries:
            self._ledger.counts.remove(entries)
        for rows in skipped:
            self.files.count_ended(self._ledger.counts, rows)
        self._loader.count_out_below_floor(ended)

    def count_dues(self, histogram: DueHistogram) -> None:
        """Known to the slot; records laps ahead count with their chain."""
        precision_ms = self._precision_ms
        loaded, begun_below = len(self._rows), self._loader.begun_below
        first_ms = self._rows.next_due_ms()
        if first_ms is not None:
            last_ms = max(first_ms, begun_below * precision_ms)
            histogram.add_evenly([Piece(first_ms, last_ms, loaded)])
        later = DueHistogram(histogram.edges_ms)
        slots, records = self.files.wheel.begun_from(begun_below)
        later.add(slots * precision_ms, records)
        histogram.join(later, max(0, self._ledger.counts.total - loaded))

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """Read some chains again, those of loaded slots too."""
        memory_from = self._loader.memory_from
        return self._scan.scan(after, until_ms, wants, max_entries, max_bytes, memory_from)

    def load(self, budget_entries: int) -> int:
        """Go on loading the next slots; how many records were read. And with the check, which takes
        nothing of the budget: it must not hold up what has to be written."""
        spent = self._loader.load_some(self._ahead_slot, budget_entries)
        if self._check is not None:
            self._check.look(budget_entries // CHECKED_SHARE)
            if self._check.is_over:
                self._check, self.files.boot_id = None, boot_id()
        return spent

    @property
    def is_loading(self) -> bool:
        """Whether a slot that comes soon is not loaded yet, or the check is not over."""
        return self._check is not None or self._loader.is_behind(self._ahead_slot)

    @property
    def wants_compaction(self) -> bool:
        """Whether enough slots have passed that their chains should be closed."""
        checkpoint = self.files.checkpoint
        passed = self._ledger.watermark_ms // self._precision_ms - checkpoint.closed
        if passed < self.files.options.close_slots:
            return False
        return bool(checkpoint.live) or bool(self.files.bodies)

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        """The steps of a `Flush`."""
        elsewhere = EndedElsewhere(self.loaded_from, self._ledger.counted)
        flush = Flush(self.files, self._ledger, self._loader, memtable, elsewhere, coverable)
        return flush.steps()

    def persist(self) -> None:
        """Nothing to do: what was written is with the system already."""

    def close(self) -> None:
        """Give the files back."""
        self.files.close()

    def _load_until(self, until_ms: int, enough: int) -> int:
        """Load up to the slot of `until_ms`, stopping once `enough` rows wait; that slot."""
        slot = until_ms // self._precision_ms
        if slot >= self._loader.next_slot:
            self._loader.load_through(slot, enough)
        return slot
