"""What the next transaction of one shard will hold beside the entries that are due by then."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.records.dead_letter import DeadLetter
from proxy.records.outcome import Outcome
from proxy.scheduling.auxiliary_record import AuxiliaryRecord
from storage.store import Entry


@dataclass(slots=True)
class TransactionBuffer:
    """Collects what ends as it is ingested. `deliveries`: entries due by the watermark already."""

    deliveries: list[Entry] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    auxiliary: list[AuxiliaryRecord] = field(default_factory=list)

    def __len__(self) -> int:
        ended = len(self.deliveries) + len(self.dead_letters)
        return ended + len(self.outcomes) + len(self.auxiliary)
