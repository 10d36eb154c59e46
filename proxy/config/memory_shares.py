"""How a worker's memory budget (setting `memory.per_worker`) is shared out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MIB: Final = 2**20
LEAST_BYTES: Final = 64 * MIB
QUEUE_SETTINGS: Final = {"queued.max.messages.kbytes": 1024, "fetch.max.bytes": 1}
"""What librdkafka holds of records that are to be consumed, in units of so many bytes."""
MOST_QUEUE_BYTES: Final = 2**30
MOST_FETCH_BYTES: Final = 50 * MIB
"""Larger answers than librdkafka asks for by itself help nobody, and it refuses some."""


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Bytes of one worker's budget, in sixteenths of it:

    memtables (4): beyond that the heaviest is written out; most_memtables (6): and beyond that
    nothing is fetched. transaction (1): bodies of the records that one transaction holds, which are
    in memory up to six times on their way. queue (1): fetched and not consumed yet; as much again
    has been consumed and is not stored yet. fetch (1/2): one answer of one broker.
    """

    memtables: int
    most_memtables: int
    transaction: int
    queue: int
    fetch: int


def memory_shares(budget_bytes: int, kafka: Mapping[str, str]) -> MemoryShares:
    """What `kafka` sets of queues by itself counts first; the rest is shared out.

    Raises ValueError when that is too little.
    """
    own_bytes = sum(
        int(kafka[name]) * unit_bytes
        for name, unit_bytes in QUEUE_SETTINGS.items()
        if kafka.get(name, "").isdecimal()
    )
    least_bytes = LEAST_BYTES + own_bytes
    if budget_bytes < least_bytes:
        why = f" ({', '.join(QUEUE_SETTINGS)} of `kafka` included)" if own_bytes else ""
        raise ValueError(
            "per_worker is less than a worker needs: give it at least "
            f"{-(-least_bytes // MIB)}MiB{why}"
        )
    sixteenth = (budget_bytes - own_bytes) // 16
    return MemoryShares(
        memtables=4 * sixteenth,
        most_memtables=6 * sixteenth,
        transaction=sixteenth,
        queue=min(sixteenth, MOST_QUEUE_BYTES),
        fetch=min(sixteenth // 2, MOST_FETCH_BYTES),
    )
