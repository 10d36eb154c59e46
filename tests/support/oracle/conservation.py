"""Judge. It checks that every ingress record ended exactly once, not early, as requested and as the
later records of the ingress demand. It reads only the topics (read_committed), without the proxy's
code."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.support.oracle.asked import Rules, is_control, is_move
from tests.support.oracle.check_backs import CheckBacks, expired_early
from tests.support.oracle.committed_reader import CommittedReader, Placed
from tests.support.oracle.ends import DROPPED, Ends, Outcome, Topics, read_ends
from tests.support.oracle.faithful import wrong_letters, wrong_life
from tests.support.oracle.lives import Lives
from tests.support.oracle.standstill import what_stands_still
from tests.support.records import Incoming

SHOWN = 10
BURIED = ("dead-lettered", "expired")
OF_CONTROLS = {"applied", "missed", "dead-lettered"}


def ends_so_far(topics: Topics) -> int:
    with CommittedReader(topics.bootstrap) as counter:
        return counter.count([*topics.targets, topics.outcomes])


def await_ends(topics: Topics, wanted: Callable[[], int], timeout_s: float) -> None:
    """Wait until enough ingress records have ended. `wanted` is called repeatedly, because the
    proxy writes to the ingress, too."""
    deadline = time.monotonic() + timeout_s
    ended, enough = -1, wanted()
    with CommittedReader(topics.bootstrap) as counter:
        while ended < enough:
            ended = counter.count([*topics.targets, topics.outcomes], enough, deadline)
            if ended < enough:
                held = "; ".join(what_stands_still(topics))
                said = f"{ended} of {enough} records had ended after {timeout_s:g} s"
                raise AssertionError(f"{said}: {held}")
            enough = wanted()


@contextmanager
def ingress_count(topics: Topics) -> Iterator[Callable[[], int]]:
    """Yield a function that counts the ingress records. A rewritten copy may become visible
    slightly after its outcome."""
    with CommittedReader(topics.bootstrap) as counter:
        yield lambda: counter.count([topics.ingress], awaits_open=True)


def judge(topics: Topics, rules: Rules, deleted: Mapping[str, Incoming]) -> Ends:
    """Read and judge all topics. Return the ends. `deleted` are ingress records by origin that
    retention has removed."""
    ends = read_ends(topics)
    ends.ingress = {**deleted, **ends.ingress}
    fail_of(violations(ends, rules), ends.counts)
    return ends


def fail_of(wrong: Sequence[str], counts: Mapping[str, int]) -> None:
    shown = "\n".join(wrong[:SHOWN])
    assert not wrong, f"{len(wrong)} violations, {dict(counts)}, the first:\n{shown}"


def violations(ends: Ends, rules: Rules) -> list[str]:
    checks = CheckBacks(rules)
    for place, record in ends.ingress.items():
        checks.ingress(Placed(place.split("/")[0], record))
    return [*wrong_ends(ends, rules), *checks.wrong(ends.checks)]


def wrong_ends(ends: Ends, rules: Rules) -> list[str]:
    """Return violations, except those of check-backs. `ends` may have only one ingress
    partition."""
    wrong = [*_not_conserved(ends), *wrong_letters(ends)]
    for lives in _lives(ends, rules):
        wrong += lives.judge()
        for life in lives.all():
            wrong += wrong_life(ends, life, rules)
    return [*wrong, *expired_early(ends, rules)]


def _lives(ends: Ends, rules: Rules) -> Iterator[Lives]:
    partitions: dict[str, list[tuple[int, Incoming]]] = defaultdict(list)
    for place, record in ends.ingress.items():
        partitions[place.rpartition("/")[0] + "/"].append((record.offset, record))
    said = ends.said
    for origin, log in partitions.items():
        lives = Lives(origin, said, rules)
        for offset, record in sorted(log, key=lambda row: row[0]):
            lives.replay(offset, record)
        yield lives


def _not_conserved(ends: Ends) -> Iterator[str]:
    for origin, record in ends.ingress.items():
        outcomes = [str(o["outcome"]) for o in ends.outcomes.get(origin, ())]
        deliveries = len(ends.deliveries.get(origin, ()))
        if deliveries + len(outcomes) != 1:
            yield f"{origin} has {deliveries + len(outcomes)} ends"
        if not is_control(record):
            if {"applied", "missed"} & set(outcomes) and not _came_too_late(record, outcomes):
                yield f"{origin} is no control record and ended as {outcomes}"
            continue
        if not set(outcomes) <= OF_CONTROLS:
            yield f"{origin} is a control record and ended as {outcomes}"
        if deliveries:
            yield f"{origin} is a control record and was delivered"
    for origin in {*ends.deliveries, *ends.outcomes, *ends.dead_letters} - set(ends.ingress):
        yield f"{origin} was never in the ingress"
    for origin in {*ends.outcomes, *ends.dead_letters}:
        found_letters = len(ends.dead_letters.get(origin, ()))
        if found_letters != sum(map(_is_buried, ends.outcomes.get(origin, ()))):
            outcomes = [str(o["outcome"]) for o in ends.outcomes.get(origin, ())]
            yield f"{origin}: outcomes {outcomes}, {found_letters} dead letters"


def _came_too_late(record: Incoming, outcomes: Sequence[str]) -> bool:
    return is_move(record) and outcomes == ["missed"]


def _is_buried(outcome: Outcome) -> bool:
    """Return whether a record with this outcome has a dead letter. Records dropped by
    `release.overdue` expire without a dead letter."""
    is_dropped = outcome["outcome"] == "expired" and DROPPED in str(outcome["detail"])
    return outcome["outcome"] in BURIED and not is_dropped
