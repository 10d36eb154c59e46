"""Ends of ingress records, as the topics show them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.support.oracle.committed_reader import CommittedReader, Placed
from tests.support.records import Incoming

DELIVERED, DEAD = "delivered", "dead-lettered"
DROPPED = "(release.overdue)"
Outcome = dict[str, object]


class Topics(Protocol):
    @property
    def bootstrap(self) -> str: ...
    @property
    def ingress(self) -> str: ...
    @property
    def dead_letters(self) -> str: ...
    @property
    def outcomes(self) -> str: ...
    @property
    def targets(self) -> Sequence[str]: ...
    @property
    def check_topics(self) -> Sequence[str]: ...


@dataclass(slots=True)
class Ends:
    """Ends of the ingress records by origin (`topic/partition/offset`). `applied_ms` is the time of
    a control record's outcome `applied`."""

    ingress: dict[str, Incoming] = field(default_factory=dict)
    deliveries: dict[str, list[Placed]] = field(default_factory=lambda: defaultdict(list))
    outcomes: dict[str, list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    dead_letters: dict[str, list[Incoming]] = field(default_factory=lambda: defaultdict(list))
    applied_ms: dict[str, int] = field(default_factory=dict)
    checks: list[Placed] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        kinds = [str(o["outcome"]) for found in self.outcomes.values() for o in found]
        return +Counter({DELIVERED: sum(map(len, self.deliveries.values())), **Counter(kinds)})

    @property
    def lateness_ms(self) -> list[int]:
        """Return the broker's append time minus the due time of every delivery."""
        placed = [p for found in self.deliveries.values() for p in found]
        return [p.record.timestamp_ms - int(p.record.header("timer-due") or b"0") for p in placed]

    @property
    def said(self) -> dict[str, tuple[str, str]]:
        """Return each record's end (`delivered` or the outcome) with its detail. Records dropped by
        `release.overdue` count as dead letters: they were due and did not arrive."""
        said = dict.fromkeys(self.deliveries, (DELIVERED, ""))
        for origin, found in self.outcomes.items():
            for outcome in found:
                what, detail = str(outcome["outcome"]), str(outcome["detail"])
                said[origin] = (DEAD if DROPPED in detail else what), detail
        return said

    def add_targets(self, records: Iterable[Placed]) -> None:
        for placed in records:
            self.deliveries[origin_of(placed.record)].append(placed)

    def add_outcomes(self, records: Iterable[Incoming]) -> None:
        for record in records:
            outcome = json.loads(record.value or b"")
            assert record.key == outcome["origin"].encode(), outcome
            self.outcomes[outcome["origin"]].append(outcome)
            if outcome["outcome"] == "applied":
                self.applied_ms[outcome["origin"]] = record.timestamp_ms

    def add_dead_letters(self, records: Iterable[Incoming]) -> None:
        for record in records:
            self.dead_letters[origin_of(record)].append(record)


def read_ends(topics: Topics) -> Ends:
    ends = Ends()
    with CommittedReader(topics.bootstrap) as reader:
        ends.ingress = {p.place: p.record for p in reader.read([topics.ingress])}
        ends.add_targets(reader.read(topics.targets))
        ends.add_outcomes(p.record for p in reader.read([topics.outcomes]))
        ends.add_dead_letters(p.record for p in reader.read([topics.dead_letters]))
        ends.checks = list(reader.read(topics.check_topics))
    return ends


def origin_of(record: Incoming) -> str:
    return (record.header("timer-origin") or b"without an origin").decode()
