"""How much pends, over the entries on disk and the tables in memory alike."""

from collections.abc import Sequence

from storage.shard.ledger import Ledger
from storage.shard.recent import Recent


def floor_of(ledger: Ledger, tables: Sequence[Recent], next_offset: int) -> int:
    """See `Store.floor`."""
    chunks = [table.counts.chunks.floor() for table in tables]
    chunks.append(ledger.counts.chunks.floor())
    lowest = min((chunk for chunk in chunks if chunk is not None), default=next_offset)
    return min(next_offset, max(lowest, ledger.floor))


def pending_of(ledger: Ledger, tables: Sequence[Recent]) -> int:
    """See `Store.pending`."""
    return ledger.counts.total + sum(map(len, tables))


def targets_of(ledger: Ledger, tables: Sequence[Recent]) -> dict[str, int]:
    """See `Store.pending_by_target`."""
    targets = ledger.counts.targets.copy()
    for table in tables:
        targets.update(table.counts.targets)
    return dict(targets)
