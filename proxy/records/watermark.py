"""How far a shard has fired (docs/exactly-once.md#1-when-a-record-has-ended)."""

from __future__ import annotations

from typing import NamedTuple


class Watermark(NamedTuple):
    """A place in the order in which entries fire: what lies at or below it has ended.

    Compares with the key of an entry, (when it fires, its offset).
    """

    due_ms: int
    offset: int
