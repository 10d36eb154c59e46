"""What one transaction holds of one shard, as planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.records.dead_letter import DeadLetter
from proxy.records.outcome import Outcome
from proxy.records.position import Position
from proxy.scheduling.auxiliary_record import AuxiliaryRecord
from storage.store import Entry


@dataclass(frozen=True, slots=True)
class Plan:
    """What a transaction holds of a shard, and the position that it makes true.

    `passed`: pending entries that it passes over, since their ids were cancelled or replaced.
    """

    deliveries: Sequence[Entry]
    dead_letters: Sequence[DeadLetter]
    outcomes: Sequence[Outcome]
    auxiliary: Sequence[AuxiliaryRecord]
    position: Position
    passed: int = 0

    @property
    def records(self) -> int:
        """How many records the transaction deals with."""
        ended = len(self.deliveries) + len(self.dead_letters) + len(self.outcomes)
        return ended + len(self.auxiliary) + self.passed
