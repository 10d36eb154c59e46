"""What becomes of records that are long overdue: the settings' `release.overdue`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from proxy.records.delivery import Delivery
from proxy.records.headers import ID
from proxy.records.outcome import EXPIRED, Outcome
from proxy.records.rejection import Rejection


class OverdueRule(NamedTuple):
    """What becomes of records for `targets` (a shell pattern) once they are so much overdue."""

    targets: str
    older_than_ms: int
    action: Literal["deliver", "dead-letter", "drop"]

    def end(self, delivery: Delivery, overdue_ms: int) -> Rejection | Outcome | None:
        """How a record ends to which this rule applies; None: it is delivered all the same."""
        if self.action == "deliver":
            return None
        detail = (
            f"{overdue_ms} ms overdue; {self.targets} allows {self.older_than_ms} (release.overdue)"
        )
        if self.action == "dead-letter":
            return Rejection("overdue", f"the record for {delivery.target} was {detail}")
        return Outcome(delivery.offset, EXPIRED, delivery.due_ms, delivery.header(ID), detail)
