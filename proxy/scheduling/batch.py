"""One shard's part of a transaction: as planned, and as resolved when it is published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proxy.records.dead_letter import DeadLetter
from proxy.records.delivery import Delivery
from proxy.records.ingress_partition import IngressPartition
from proxy.records.outcome import Outcome
from proxy.scheduling.auxiliary_record import AuxiliaryRecord
from storage.store import Entry


class Hop(NamedTuple):
    """A record that is written to the ingress again instead of being delivered.

    what: its outcome, `rolled` or `requeued`. not_before_ms: when it is tried again, failures:
    how often publishing it has failed; None: as before.
    """

    delivery: Delivery
    what: str
    detail: str = ""
    not_before_ms: int | None = None
    failures: int | None = None


class Batch(NamedTuple):
    """What a transaction holds of one shard, its due entries still packed."""

    ingress: IngressPartition
    deliveries: Sequence[Entry]
    dead_letters: Sequence[DeadLetter] = ()
    outcomes: Sequence[Outcome] = ()
    auxiliary: Sequence[AuxiliaryRecord] = ()

    @property
    def hops(self) -> list[Hop]:
        """None: what has not been resolved is delivered."""
        return []


class ResolvedBatch(NamedTuple):
    """A batch whose due entries are unpacked: what cannot be delivered now has another outcome."""

    ingress: IngressPartition
    deliveries: Sequence[Delivery]
    dead_letters: Sequence[DeadLetter]
    outcomes: Sequence[Outcome]
    auxiliary: Sequence[AuxiliaryRecord]
    hops: list[Hop]
