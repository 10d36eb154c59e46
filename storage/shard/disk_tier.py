"""What a kind of store must do on disk so that a `TieredStore` can put memtables in front of it."""

from collections.abc import Callable, Iterator
from typing import Protocol

from storage.shard.memory.due_histogram import DueHistogram
from storage.shard.memory.memtable import Memtable
from storage.store import Due, Key, Scanned, Wants


class DiskTier(Protocol):
    """The entries on disk that pend, and their counts in the shard's `Ledger`.

    What reads may raise StoreDamaged, and all may raise OSError."""

    @property
    def peeked_bytes(self) -> int:
        """What the bodies take that were peeked at and have not ended."""
        ...

    def peek(self, until_ms: int, max_entries: int, max_bytes: int) -> Due:
        """The first `max_entries` entries due by `until_ms`, fewer if they are large: bodies are
        read as long as all that were peeked at take at most `max_bytes`, one at least."""
        ...

    def next_due_ms(self, until_ms: int) -> int | None:
        """The earliest due; None, or one later than `until_ms`, when none is due by then."""
        ...

    def forget(self, ended: Key) -> None:
        """Count out every entry at or below `ended`, which is the ledger's watermark by now."""
        ...

    def count_dues(self, histogram: DueHistogram) -> None:
        """Add about when the entries are due to `histogram`."""
        ...

    def scan(
        self, after: Key, until_ms: int, wants: Wants, max_entries: int, max_bytes: int
    ) -> Scanned:
        """As `Store.scan`, of the entries on disk; `after` is not below what has ended. What was
        peeked at or loaded stays as it is."""
        ...

    def load(self, budget_entries: int) -> int:
        """Read ahead what is due soon, and look for damage; how many entries that was worth."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether `load` has more to do."""
        ...

    @property
    def wants_compaction(self) -> bool:
        """Whether enough has ended that a `flush` would give space back."""
        ...

    def flush(self, memtable: Memtable | None, coverable: Callable[[], int]) -> Iterator[int]:
        """Write a memtable, which changes no more but for what ends, compact, and replace the
        checkpoint with one that covers `coverable()`, asked at that instant.

        Yields about how many entries each step was worth. When the last step has been done the
        entries are read from disk and counted in the ledger, until then they are read from the
        memtable. When a step raises OSError, it is as if none had been done; once the checkpoint
        counts, whatever goes wrong is StoreDamaged."""
        ...

    def persist(self) -> None:
        """Let what was flushed survive the end of the process."""
        ...

    def close(self) -> None:
        """Give the files back; writes nothing."""
        ...
