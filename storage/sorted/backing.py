"""What a sorted place on disk must do so that `BackedStore` can make a `Store` of it."""

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple, Protocol, TypeAlias

from storage.shard.checkpoint import Checkpoint
from storage.shard.due_histogram import Piece
from storage.store import Entry

Key: TypeAlias = tuple[int, int]
"""(due_ms, offset)."""


class Rows(NamedTuple):
    """Columns of equal length in (due, offset) order, and the due of the first row beyond them
    (None: there is none)."""

    dues_ms: list[int]
    offsets: list[int]
    targets: list[str]
    bodies: list[bytes]
    next_due_ms: int | None

    def entries(self) -> list[Entry]:
        """The rows as entries."""
        return list(zip(self.dues_ms, self.offsets, self.targets, self.bodies, strict=True))

    def where(self, wanted: Sequence[bool]) -> "Rows":
        """The rows that are wanted."""
        return Rows(
            list(compress(self.dues_ms, wanted)),
            list(compress(self.offsets, wanted)),
            list(compress(self.targets, wanted)),
            list(compress(self.bodies, wanted)),
            self.next_due_ms,
        )


class Backing(Protocol):
    """Rows on disk, with a checkpoint that becomes durable together with them."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The last one written; None in a new folder."""
        ...

    @property
    def files(self) -> int:
        """How many files hold rows."""
        ...

    def read(self, after: Key, until_ms: int, most_rows: int, most_bytes: int) -> Rows:
        """Rows beyond `after` and due by `until_ms`: at least one where there is one, and about
        as many as the limits allow. Raises StoreDamaged."""
        ...

    def pieces(self) -> list[Piece]:
        """About when the rows are due; asked once, when the backing has been opened."""
        ...

    def write(self, entries: Sequence[Entry], checkpoint: Checkpoint) -> None:
        """Add entries given in (due, offset) order, drop the rows at or below the checkpoint's
        watermark, replace the checkpoint: all of it or, when an OSError is raised, none."""
        ...

    def tidy(self, budget_entries: int) -> bool:
        """Do a bounded piece of own work; True when more waits. Raises OSError, StoreDamaged."""
        ...

    def persist(self) -> None:
        """Let what was written survive the end of the process. Raises OSError."""
        ...

    def close(self) -> None:
        """Give the files back."""
        ...
