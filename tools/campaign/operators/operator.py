"""Definition of fault operators. An operator plants a fault in the topics of a run, and says which
verdicts the audit must then give."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from proxy.dispatch.partitioning import partition_of
from tools.campaign.contents import DELIVERED, MOVED, Contents, Ended, Held, by_place
from tools.campaign.scene import LAST, MOMENTS_MS, OWN, OWN_STRIDE

Verdicts = Mapping[str, frozenset[str]]
FAITHFUL_MS: Final = 5_000
CONTROLS: Final = ("cancel", "recall", "purge", "commit", "rollback", "expire")
UNSETTLED: Final = "unsettled"
"""Marker beside verdicts: the record may be pending in a mode that judges only ended records."""


@dataclass(frozen=True, slots=True)
class Planted:
    """Effect of a fault. `expected` maps origins to verdicts. The audit must give each origin one
    of its verdicts. At least one of these origins must be a violation. `sides` maps further origins
    to verdicts. For these origins the audit may give one of the verdicts, or the same verdict as
    without the fault."""

    expected: Verdicts
    sides: Verdicts = field(default_factory=dict)


def named(*verdicts: tuple[str, str], sides: Iterable[tuple[str, str]] = ()) -> Planted:
    """Make a `Planted` from pairs of an origin and its verdicts. Blanks separate the verdicts."""
    return Planted(
        {origin: frozenset(said.split()) for origin, said in verdicts},
        {origin: frozenset(said.split()) for origin, said in sides},
    )


@dataclass(slots=True)
class Planting:
    contents: Contents
    draw: Random
    records: list[Ended] = field(init=False)
    places: dict[tuple[int, int], Ended] = field(init=False)

    def __post_init__(self) -> None:
        self.records = self.contents.records()
        self.places = by_place(self.records)

    def next_with_id(self, one: Ended) -> Ended | None:
        return next(
            (
                other
                for other in self.records
                if other.partition == one.partition
                and other.record.offset > one.record.offset
                and other.ident == one.ident
                and other.kind in {"record", "prepare", "cancel"}
                and other.hop_from is None
                and (other.kind == "cancel" or other.code is None)
            ),
            None,
        )

    def predecessor(self, one: Ended) -> Ended | None:
        at = one.hop_from
        return None if at is None else self.places.get((one.partition, at))

    def later_of(self, one: Ended) -> list[tuple[str, str]]:
        """Return side verdicts (`Planted.sides`) of the records whose verdicts depend on how `one`
        ended: control records with its id, its recalls and successors, and records that it
        purged."""
        same = [
            (other.origin, "contradicted")
            for other in self.records
            if other.partition == one.partition
            and other.record.offset > one.record.offset
            and one.ident is not None
            and other.ident == one.ident
            and other.kind in CONTROLS
        ]
        after = [(later.origin, "contradicted") for later in self.after(one)]
        late = [(other.origin, "contradicted") for other in self.came_too_late_for(one)]
        return [*same, *self.recalls_of(one), *self.purged_by(one), *after, *late]

    def came_too_late_for(self, one: Ended) -> list[Ended]:
        return [
            other
            for other in self.records
            if other.partition == one.partition
            and other.hop_from == one.record.offset
            and other.end == "missed"
        ]

    def purged_by(self, one: Ended) -> list[tuple[str, str]]:
        """Return side verdicts of the records that a purge ended, and of the control records that
        missed these records. Without the purge, some of the records may still be pending."""
        purged = [o for o in self.records if o.purged_by == one.origin]
        missed = {o.origin for o in self.records if o.end == "missed"}
        hanging = [pair for o in purged for pair in self.later_of(o) if pair[0] in missed]
        of_purge = [
            (o.origin, f"contradicted {UNSETTLED}" if self.may_wait(o) else "contradicted")
            for o in purged
        ]
        return [*hanging, *of_purge]

    def may_wait(self, one: Ended) -> bool:
        """Return whether only the record's outcome or its purge proves that it ended."""
        is_early = one.purged_by is not None or one.end in {MOVED, "missed"}
        fires_ms, roll_ms = one.wanted_ms, self._roll_after_ms(one)
        if roll_ms is not None:
            fires_ms = min(fires_ms, one.record.timestamp_ms + roll_ms)
        is_next = one.ident is not None and self.next_with_id(one) is not None
        is_ended = is_next or bool(self.recalls_of(one))
        is_due = fires_ms <= self.watermark_ms(one.partition)
        return is_early and not is_due and not is_ended

    def _roll_after_ms(self, one: Ended) -> int | None:
        """Return the time until a rewrite, by the settings in force for the record."""
        served = self.contents.moments[LAST].served[one.partition]
        digest = [digest for first, digest in served if first <= one.record.offset][-1]
        roll_ms: int | None = json.loads(self.contents.policies[digest])["roll_after_ms"]
        return roll_ms

    def read_ms(self, one: Ended) -> int | None:
        """Return a time at which the proxy had read the record: the earliest end of
        this record or of a later record in its partition. Return None if none of these records has
        an end."""
        ends = [
            end.timestamp_ms
            for other in self.records
            if other.partition == one.partition and other.record.offset >= one.record.offset
            for end in (*other.deliveries, *other.outcomes)
        ]
        return min(ends, default=None)

    def recalls_of(self, one: Ended) -> list[tuple[str, str]]:
        origins = {one.origin, one.record.text("timer-first-origin")}
        origins |= {later.origin for later in self.after(one)}
        recalls = (o for o in self.records if o.kind == "recall")
        return [(o.origin, "contradicted") for o in recalls if o.recalled in origins]

    def recall_of(self, one: Ended) -> Ended | None:
        return next((other for other in self.records if other.recalled == one.origin), None)

    def after(self, one: Ended) -> list[Ended]:
        found: list[Ended] = []
        successor = one.successor
        while successor is not None:
            found.append(self.places[successor.partition, successor.offset])
            successor = found[-1].successor
        return found

    def shares_due(self, one: Ended) -> bool:
        """Return whether another record of the record's partition has the same due, so that they
        must be delivered in order."""
        return any(
            other.due_ms == one.due_ms and other.origin != one.origin
            for other in self.records
            if other.partition == one.partition and (other.deliveries or other.outcomes)
        )

    def watermark_ms(self, partition: int) -> int:
        return self.contents.moments[LAST].committed[partition].watermark_ms

    def later(self, one: Held) -> Held:
        copy = one.copy()
        copy.since = self.draw.randint(one.since, LAST)
        return self.contents.add(copy)

    def deliver(self, one: Ended, at_ms: int | None = None, due_ms: int | None = None) -> Held:
        """Deliver an undelivered ingress record as the proxy would. If `at_ms` is None, deliver it
        after the proxy read it. An earlier delivery would prove that the proxy had read all earlier
        records by then."""
        asked, due = one.record, one.due_ms if due_ms is None else due_ms
        topic = asked.text("timer-topic") or ""
        could_ms = max(due, asked.timestamp_ms, self.read_ms(one) or 0)
        when_ms = could_ms + 3 if at_ms is None else at_ms
        key = dict(asked.headers).get("timer-key", asked.key)
        users = [header for header in asked.headers if not header[0].startswith("timer-")]
        stamps = [("timer-origin", one.origin.encode()), ("timer-due", b"%d" % due)]
        first = asked.header("timer-first-origin")
        if one.hop_from is not None and first is not None:
            stamps.append(("timer-first-origin", first))
        count = self.contents.partition_counts.get(topic, 1)
        number = asked.number("timer-partition")
        if number is None:
            number = 0 if key is None else partition_of(key, count)
        return self.contents.add(
            Held(
                topic,
                number,
                -1,
                when_ms,
                key,
                asked.value,
                [*users, *stamps],
                _since(one, when_ms),
            )
        )

    def end_as(self, one: Ended, outcome: str, at_ms: int, **told: object) -> Held:
        ident = one.ident
        said = {
            "origin": one.origin,
            "outcome": outcome,
            "due": one.due_ms or None,
            "id": None if ident is None else ident.decode("utf-8", "backslashreplace"),
            "detail": "",
            **told,
        }
        found = Held(OWN.outcomes, 0, self.own_offset(), at_ms, b"", None, [], _since(one, at_ms))
        found.say(**said)
        return self.contents.add(found)

    def bury(self, one: Ended, code: str, detail: str, at_ms: int) -> None:
        self.end_as(one, "dead-lettered", at_ms, detail=f"{code}: {detail}")
        self.add_letter(one, code, detail, at_ms)

    def add_letter(self, one: Ended, code: str, detail: str, at_ms: int) -> Held:
        asked = one.record
        reason = [("timer-error", code.encode()), ("timer-error-detail", detail.encode())]
        headers = [*asked.headers, *reason, ("timer-origin", one.origin.encode())]
        return self.contents.add(
            Held(
                *(OWN.dead_letters, 0, self.own_offset(), at_ms),
                *(asked.key, asked.value, headers, _since(one, at_ms)),
            )
        )

    def own_offset(self) -> int:
        return self.contents.run * OWN_STRIDE


def _since(one: Ended, at_ms: int) -> int:
    """Return the first moment at which an end with this time exists. This moment is not before the
    first moment of the record's other ends."""
    first = next((n for n, moment in enumerate(MOMENTS_MS) if at_ms <= moment), LAST)
    ended = min((end.since for end in (*one.deliveries, *one.outcomes)), default=0)
    return max(first, ended)


Where = Callable[[Planting, Ended], bool]
Plant = Callable[[Planting, Ended], Planted]


class Operator(NamedTuple):
    """Fault operator. `says` describes the fault. `where` selects the records in which the fault
    can be planted. `unseen_in` maps each mode that cannot see the fault to the reason."""

    name: str
    says: str
    where: Where
    plant: Plant
    unseen_in: Mapping[str, str]

    def places(self, planting: Planting) -> list[Ended]:
        return [one for one in planting.records if self.where(planting, one)]


class Operators:
    def __init__(self) -> None:
        self.all: list[Operator] = []

    def add(self, says: str, where: Where, **unseen_in: str) -> Callable[[Plant], Plant]:
        def of(plant: Plant) -> Plant:
            name = plant.__name__.replace("_", "-")
            self.all.append(Operator(name, says, where, plant, unseen_in))
            return plant

        return of


def is_delivered(_t: Planting, one: Ended) -> bool:
    return one.end == DELIVERED


def ended_as(*outcomes: str, kinds: Iterable[str] = ("record", "prepare")) -> Where:
    return lambda _t, one: one.end in outcomes and one.kind in kinds


def is_control(*outcomes: str) -> Where:
    return ended_as(*outcomes, kinds=CONTROLS)


def both(*all_of: Where) -> Where:
    return lambda t, one: all(where(t, one) for where in all_of)


FOREIGN: Final = frozenset({"x-delay", "cesium-delay-ms", "Nats-Schedule"})


def is_plain(t: Planting, one: Ended) -> bool:
    return one.end == DELIVERED and one.is_plain and is_in_our_words(t, one)


def is_in_our_words(_t: Planting, one: Ended) -> bool:
    """Return whether the record has no headers of other schedulers. Operators can make the dead
    letters of such records."""
    return not any(name in FOREIGN for name, _ in one.record.headers)


def is_alone(t: Planting, one: Ended) -> bool:
    return not t.shares_due(one)
