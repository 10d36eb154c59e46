"""Limited views of a run's topics. Retention may have deleted records, an open transaction may hide
records, or records may come during the audit. Settings may be unknown. In no view may the audit
report a violation in a run without a planted fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from proxy.dispatch.partitioning import partition_of
from spark_jobs.audit_scope import ALWAYS_MS, Unseen
from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.snapshot import Committed
from tests.support.simulation.manual_clock import START_MS
from tools.campaign.contents import Contents, Held
from tools.campaign.scene import LAST, MOMENTS_MS, OWN, PHASE_MS

GONE_MS: Final = START_MS + PHASE_MS // 2
"""Records up to this time are deleted from targets, dead letters and outcomes."""
AGED_MS: Final = START_MS + PHASE_MS // 4
"""Records up to this time are deleted from the ingress of every third run."""
PARTS: Final = 3
UNSEEN_PART: Final = 1
"""The outcomes topic has PARTS partitions. The audit does not see partition UNSEEN_PART in full."""


class Sight(NamedTuple):
    """Limited view. `change` removes records from a run. `unseen` returns what the audit knows
    about the removed records. With `settled_only`, only records that must have ended are judged.
    `at` is the judged moment."""

    change: Callable[[Contents], Contents]
    unseen: Callable[[Sequence[Contents]], Mapping[Place, Unseen]]
    settled_only: bool = False
    at: int = LAST


def _same(run: Contents) -> Contents:
    return run


def _nothing(_runs: Sequence[Contents]) -> Mapping[Place, Unseen]:
    return {}


def _is_concerned(topic: str, topics: Sequence[str]) -> bool:
    return any(topic.startswith(one) for one in topics)


def _places(runs: Sequence[Contents], topics: Sequence[str]) -> set[Place]:
    return {
        (topic, number)
        for run in runs
        for topic, count in run.partition_counts.items()
        if _is_concerned(topic, topics)
        for number in range(count)
    }


def _deleted(*topics: str, gone_ms: int = GONE_MS) -> Sight:
    def aged(run: Contents) -> Contents:
        others = [
            one
            for one in run.others
            if not _is_concerned(one.topic, topics) or one.timestamp_ms > gone_ms
        ]
        left = replace(run, others=others)
        if run.run // 2 % 3:
            return left
        starts = {p: _start(run, p) for p in run.moments[LAST].committed}
        ingress = [o for o in run.ingress if o.offset >= starts[o.partition]]
        return replace(left, ingress=ingress, log_starts=starts)

    def unseen(runs: Sequence[Contents]) -> Mapping[Place, Unseen]:
        places = _places(runs, topics)
        return {place: Unseen(gone_ms, f"{place[0]} has deleted it") for place in places}

    return Sight(aged, unseen)


def _deleted_in_part(topic: str) -> Sight:
    return _in_part(topic, 0, Unseen(MOMENTS_MS[LAST], "a partition is empty"))


def _open_in_part(topic: str) -> Sight:
    return _in_part(topic, 1, Unseen(ALWAYS_MS, "a transaction is open", is_open=True))


def _in_part(topic: str, since: int, gone: Unseen) -> Sight:
    def is_seen(one: Held) -> bool:
        is_elsewhere = not one.topic.startswith(topic) or one.partition != UNSEEN_PART
        return is_elsewhere or one.since < since

    def cut(run: Contents) -> Contents:
        others = [replace(one, partition=_part(one)) for one in run.others]
        counts = {**run.partition_counts, OWN.outcomes: PARTS}
        return replace(run, others=[*filter(is_seen, others)], partition_counts=counts)

    def unseen(runs: Sequence[Contents]) -> Mapping[Place, Unseen]:
        return {place: gone for place in _places(runs, [topic]) if place[1] == UNSEEN_PART}

    return Sight(cut, unseen)


def _part(one: Held) -> int:
    """Return the record's partition. For an outcome, compute the partition that the proxy would
    choose."""
    return partition_of(one.key or b"", PARTS) if one.topic == OWN.outcomes else one.partition


def _open(*topics: str, since: int = LAST) -> Sight:
    def cut(run: Contents) -> Contents:
        others = [
            one for one in run.others if not _is_concerned(one.topic, topics) or one.since < since
        ]
        return replace(run, others=others)

    def unseen(runs: Sequence[Contents]) -> Mapping[Place, Unseen]:
        why = "a transaction is open in"
        return {
            place: Unseen(ALWAYS_MS, f"{why} {place[0]}", is_open=True)
            for place in _places(runs, topics)
        }

    return Sight(cut, unseen)


STOOD: Final = LAST - 1
"""The judged moment, if the proxy works on after the audit has read the proxy's position."""


def _behind() -> Sight:
    """Return a view in which the proxy worked on after the audit had read its position. The audit
    sees deliveries and outcomes that came after that, but no dead letters."""

    def cut(run: Contents) -> Contents:
        others = [one for one in run.others if one.topic != OWN.dead_letters or one.since < LAST]
        before, last = run.moments[STOOD], run.moments[LAST]
        now = replace(last, committed=before.committed, served=before.served)
        return replace(run, others=others, moments=[*run.moments[:LAST], now])

    return Sight(cut, _nothing, at=STOOD)


def _ingress_open() -> Sight:
    def cut(run: Contents) -> Contents:
        others = [one for one in run.others if one.since < LAST]
        then = run.moments[STOOD]
        read_to = {p: one.next_offset or 0 for p, one in then.committed.items()}
        return replace(run, others=others, moments=[*run.moments[:LAST], then], read_to=read_to)

    return Sight(cut, _nothing, at=STOOD)


def _forgotten() -> Sight:
    """Return a view in which the settings are known only for records from the floor on. In some
    runs the committed position is missing, too."""

    def forget(run: Contents) -> Contents:
        last = run.moments[LAST]
        kept = {p: _policies_from_floor(one) for p, one in last.committed.items()}
        if run.run // 2 % 3 == 0:
            kept = {p: Committed(p) for p in kept}
        return replace(run, moments=[*run.moments[:LAST], replace(last, committed=kept, served={})])

    return Sight(forget, _nothing)


def _policies_from_floor(one: Committed) -> Committed:
    after = [policy for policy in one.policies if policy.first_offset > one.floor]
    before = [policy for policy in one.policies if policy.first_offset <= one.floor]
    at_floor = [policy._replace(first_offset=one.floor) for policy in before[-1:]]
    return replace(one, policies=(*at_floor, *after))


def _start(run: Contents, partition: int) -> int:
    """Return the first ingress offset that retention leaves. It is never above the floor."""
    gone = [
        one.offset
        for one in run.ingress
        if one.partition == partition and one.timestamp_ms <= AGED_MS
    ]
    floor = run.moments[LAST].committed[partition].floor
    return min(floor, max(gone, default=-1) + 1)


ENDS: Final = (OWN.outcomes, OWN.dead_letters, "orders-")
SIGHTS: Final[dict[str, Sight]] = {
    "whole": Sight(_same, _nothing),
    "settled": Sight(_same, _nothing, settled_only=True),
    "deleted": _deleted(*ENDS),
    "letters-deleted": _deleted(OWN.dead_letters),
    "outcomes-deleted": _deleted(OWN.outcomes),
    "outcomes-deleted-later": _deleted(OWN.outcomes, gone_ms=MOMENTS_MS[1]),
    "outcomes-deleted-in-part": _deleted_in_part(OWN.outcomes),
    "targets-deleted-in-part": _deleted_in_part("orders-"),
    "open": _open(*ENDS),
    "letters-open": _open(OWN.dead_letters),
    "outcomes-open": _open(OWN.outcomes),
    "outcomes-open-for-long": _open(OWN.outcomes, since=1),
    "outcomes-open-in-part": _open_in_part(OWN.outcomes),
    "targets-open-in-part": _open_in_part("orders-"),
    "behind": _behind(),
    "ingress-open": _ingress_open(),
    "forgotten": _forgotten(),
}
assert MOMENTS_MS[0] > GONE_MS
