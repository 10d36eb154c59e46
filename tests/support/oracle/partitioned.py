"""Judge of a long run, one ingress partition at a time to save memory. Ids and rewrites stay within
their partition. A reference to another partition finds no counterpart and is reported. Check-backs
have no origin and are judged by digests."""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.oracle.asked import Rules
from tests.support.oracle.check_backs import CheckBacks
from tests.support.oracle.committed_reader import CommittedReader, Placed
from tests.support.oracle.conservation import fail_of, wrong_ends
from tests.support.oracle.ends import Ends, Topics, origin_of
from tests.support.oracle.spool import Spool

INGRESS: Final = "ingress"
TARGETS: Final = "targets"
OUTCOMES: Final = "outcomes"
DEAD_LETTERS: Final = "dead-letters"
ORIGIN_OF: Final[dict[str, Callable[[Placed], str]]] = {
    INGRESS: lambda placed: placed.place,
    TARGETS: lambda placed: origin_of(placed.record),
    OUTCOMES: lambda placed: (placed.record.key or b"").decode(),
    DEAD_LETTERS: lambda placed: origin_of(placed.record),
}


def _milliseconds() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Tally:
    """Sums of many ends, with the arrival (epoch ms) and lateness of each delivery."""

    records: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    delivered_ms: array[int] = field(default_factory=_milliseconds)
    lateness_ms: array[int] = field(default_factory=_milliseconds)

    def add(self, ends: Ends) -> None:
        self.records += len(ends.ingress)
        self.counts += ends.counts
        for found in ends.deliveries.values():
            self.delivered_ms.extend(placed.record.timestamp_ms for placed in found)
        self.lateness_ms.extend(ends.lateness_ms)


def judge_by_partition(topics: Topics, rules: Rules, folder: Path) -> Tally:
    spool, checks, tally = Spool(folder), CheckBacks(rules), Tally()
    with _nothing_collected(), CommittedReader(topics.bootstrap) as reader:
        _spool(topics, reader, spool, checks)
        wrong = list(checks.wrong(reader.read(topics.check_topics)))
        wrong += wrong_of(spool, rules, tally)
    fail_of(wrong, tally.counts)
    return tally


def wrong_of(spool: Spool, rules: Rules, tally: Tally) -> Iterator[str]:
    for partition in spool.partitions():
        yield from _wrong_in(_ends(spool, partition), rules, tally)


def _wrong_in(ends: Ends, rules: Rules, tally: Tally) -> list[str]:
    tally.add(ends)
    return wrong_ends(ends, rules)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Switch off garbage collection, which would scan millions of small records without cycles."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def put_all(spool: Spool, kind: str, records: Iterable[Placed]) -> None:
    about = ORIGIN_OF[kind]
    for placed in records:
        spool.put(about(placed).rpartition("/")[0], kind, placed)


def _spool(topics: Topics, reader: CommittedReader, spool: Spool, checks: CheckBacks) -> None:
    put_all(spool, INGRESS, map(checks.ingress, reader.read([topics.ingress])))
    put_all(spool, TARGETS, reader.read(topics.targets))
    put_all(spool, OUTCOMES, reader.read([topics.outcomes]))
    put_all(spool, DEAD_LETTERS, reader.read([topics.dead_letters]))


def _ends(spool: Spool, partition: str) -> Ends:
    def records(kind: str) -> Iterator[Placed]:
        return spool.read(partition, kind)

    ends = Ends({placed.place: placed.record for placed in records(INGRESS)})
    ends.add_targets(records(TARGETS))
    ends.add_outcomes(placed.record for placed in records(OUTCOMES))
    ends.add_dead_letters(placed.record for placed in records(DEAD_LETTERS))
    return ends
