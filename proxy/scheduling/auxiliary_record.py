"""Records that a transaction holds beside deliveries, dead letters and outcomes."""

from __future__ import annotations

from typing import NamedTuple

from proxy.records.body import Headers


class AuxiliaryRecord(NamedTuple):
    """A check-back, or what the proxy writes to the ingress itself: it is no record's end.

    `offset`: of the ingress record that it is about. partition -1 goes by the key.
    """

    offset: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
