"""The end of a pause, which operators set at run time."""

from typing import NamedTuple


class Resumed(NamedTuple):
    """When it was, and at which rate what the pause held back goes then: so many records a second
    over all partitions; None: all at once."""

    at_ms: int
    per_second: int | None = None
