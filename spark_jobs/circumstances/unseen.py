"""What an audit could not see of the topics where records end: deleted, or not settled yet."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.positions import EndRange

ALWAYS_MS: Final = 2**62
"""Of what may be unseen whenever it was written, or will be written."""
OPEN_TRANSACTION: Final = "a transaction is open in"


class Unseen(NamedTuple):
    """Of a partition: what was written there up to `until_ms` (epoch ms) may be there unseen, or
    have been there; `why`, as the end of a sentence. is_open: a later audit will see it."""

    until_ms: int
    why: str
    is_open: bool = False


UNSEEN: Final = "struct<until_ms:bigint,why:string,is_open:boolean>"
UNSEEN_BY_PARTITION: Final = f"array<{UNSEEN}>"
"""Null for a partition of which all is seen."""


def unseen_of(ends: Iterable[EndRange], at_ms: int) -> dict[Place, Unseen]:
    """By partition, where an audit at `at_ms` does not see all that there ever was."""
    found = ((one, _unseen(one, at_ms)) for one in ends)
    return {(one.range.topic, one.range.partition): seen for one, seen in found if seen}


def _unseen(one: EndRange, at_ms: int) -> Unseen | None:
    topic, partition, _start, end = one.range
    if one.is_compacted:
        return Unseen(ALWAYS_MS, f"{topic} is compacted")
    if one.is_recreated:
        return Unseen(ALWAYS_MS, f"{topic} was created anew since an earlier audit")
    if one.is_open:
        why = f"{OPEN_TRANSACTION} {topic}, partition {partition}, from offset {end} on"
        return Unseen(ALWAYS_MS, why, is_open=True)
    if not one.has_lost:
        return None
    first_ms = at_ms if one.first_ms is None else one.first_ms
    return Unseen(first_ms, f"{topic}, partition {partition}, has deleted records of that time")


def by_partition(
    topic: str, unseen: Mapping[Place, Unseen], partitions: int
) -> list[Unseen | None] | None:
    """UNSEEN_BY_PARTITION of a topic; None where all of it is seen."""
    numbers = [number for name, number in unseen if name == topic]
    if not numbers:
        return None
    count = max(partitions, max(numbers) + 1)
    return [unseen.get((topic, number)) for number in range(count)]


def latest(parts: Sequence[Unseen | None] | None) -> Unseen | None:
    """Of a topic in any of whose partitions a record may lie."""
    return max((one for one in parts or () if one is not None), default=None)
