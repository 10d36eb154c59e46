"""A partition of the ingress topic, and the origins of its records."""

from __future__ import annotations

from typing import NamedTuple


class IngressPartition(NamedTuple):
    """One partition of the ingress topic."""

    topic: str
    number: int

    @property
    def prefix(self) -> str:
        """What the origins of its records begin with: the offset follows."""
        return f"{self.topic}/{self.number}/"

    def origin(self, offset: int) -> str:
        """The name of one of its records, as `timer-origin` and the outcomes carry it."""
        return f"{self.topic}/{self.number}/{offset}"
