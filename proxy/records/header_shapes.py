"""The headers that most records have, kept as one number: a target and a time, and no others.

Their names are the shape's, the target is the entry's; what is kept is the time as it was written.
So a dead letter still shows what was really asked, and a waiting record takes less.
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


def expanded(shape: int, time: bytes, target: str) -> list[tuple[str, bytes | None]]:
    """The headers of an entry for `target`, as they came."""
    return [(name, target.encode() if name == TOPIC else time) for name in _NAMES[shape]]
