"""The headers that most records have, kept as one number: a target and a time, and no others.

Their names are the shape's, the target is the entry's; what is kept is the time as it was written,
or nothing where that is the entry's due in epoch ms. So a dead letter still shows what was really
asked, and a waiting record takes less.
"""

from typing import Final

from proxy.records.headers import DELAY, DELIVER_AT, LEVEL, TOPIC

SHAPES: Final = {
    names: shape
    for shape, names in enumerate(
        (pair for time in (DELIVER_AT, DELAY, LEVEL) for pair in ((TOPIC, time), (time, TOPIC))), -7
    )
}
"""By the names of the two headers, in order. Below -1: no partition is such a number."""
_NAMES: Final = {shape: names for names, shape in SHAPES.items()}


def kept_time(time: bytes, due_ms: int) -> bytes | None:
    """What is kept of a time by which a record is due then."""
    return None if time == b"%d" % due_ms else time


def expanded(
    shape: int, time: bytes | None, target: str, due_ms: int
) -> list[tuple[str, bytes | None]]:
    """The headers of an entry for `target` with this due, as they came."""
    written = b"%d" % due_ms if time is None else time
    return [(name, target.encode() if name == TOPIC else written) for name in _NAMES[shape]]
