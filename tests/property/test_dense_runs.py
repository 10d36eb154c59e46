"""Dense random runs of the whole proxy: two ids, short retention, all operations.

Hypothesis spreads its examples evenly. These runs aim at points where operations meet: cancels in
mid-hop, half messages across crashes, records written during a commit.
"""

import random
from collections.abc import Iterable

import pytest

from storage.options import StoreKind
from tests.property.test_exactly_once import COMMITS, run
from tests.support.simulation.manual_clock import START_MS

pytestmark = pytest.mark.rest

RUNS = {None: 600, "wheel": 100, "rocksdb": 25}
FOUND_FAULTS = [1302, 1406]
"""Seeds that found faults with the wheel: a stale half message, and a sweep too far."""
SOAK_RUNS = 5_000
Step = tuple[object, ...]


def _time(chance: random.Random) -> dict[str, str]:
    return chance.choice(
        [
            {"timer-deliver-at": str(START_MS + chance.randrange(-2, 13))},
            {"timer-delay": str(chance.randrange(7))},
            {"timer-delay": str(chance.randrange(81))},
            {"timer-delay": str(chance.randrange(81))},
            {"timer-level": str(chance.randrange(4))},
            {},
        ]
    )


def _request(chance: random.Random, recalls: int) -> dict[str, str]:
    time, ident = _time(chance), {"timer-id": chance.choice("ab")}
    prepare = {"timer-transaction": "prepare", "timer-check-topic": "checks"}
    decide = {"timer-transaction": chance.choice(["commit", "commit", "rollback"])}
    return chance.choices(
        [
            time,
            {"timer-delay": "soon"},
            {**time, **ident},
            {"timer-cancel": ident["timer-id"]},
            {**time, **ident, **prepare},
            {**ident, **decide},
            {"timer-recall": str(min(chance.randrange(1, 20), chance.randrange(1, 20)))},
        ],
        [15 + recalls, 3, 37, 17, 13, 15, recalls],
    )[0]


def _step(chance: random.Random, sends: int, crashes: int, recalls: int, purges: int) -> Step:
    """Draw a step by weight. With few pending records the floor is close behind."""
    when = chance.choice(["send", "send", "send meanwhile"])
    target = chance.choice(["orders", "orders", "bills", "nowhere"])
    purged = chance.choice([None, START_MS]), chance.choice([None, START_MS + 40])
    steps: list[Step] = [
        (when, _request(chance, recalls), target, chance.choice([0, 0, 0, 1])),
        ("turn", chance.randrange(1, 3)),
        ("pass", chance.choice([0, 1, 2, 3, 5, 8, 13, 30])),
        ("crash",),
        ("stop",),
        (chance.choice(["move", "move after a crash"]),),
        ("fault", chance.choice(["before", "after"]), chance.choice("FRA")),
        ("rebalance", chance.choice(["on_revoke", "on_lost"]), chance.randrange(2)),
        (chance.choice(["behind", "ahead"]), chance.randrange(1, 9)),
        ("policy", {"max_delay_ms": chance.randrange(6, 60)}),
        ("policy", {"roll_after_ms": chance.choice([None, 12, 25])}),
        ("bodies", chance.choice(["local", "kafka"])),
        (f"purge{when[4:]}", chance.choice(["orders", "*"]), *purged, chance.choice([0, 0, 0, 1])),
    ]
    weights = [sends, 25, 18, crashes, 3, 3, 2, 2, 3, 1, 1, 1, purges]
    return chance.choices(steps, weights)[0]


def _move_records(script: list[Step], chance: random.Random) -> None:
    for _ in range(chance.choice([2, 10, 30])):
        before = min(chance.randrange(1, 20), chance.randrange(1, 20))
        when = chance.choice(["again", "again meanwhile"])
        step = when, before, chance.choice([0, 0, 0, 1]), START_MS + chance.randrange(-2, 90)
        script.insert(chance.randrange(len(script)), step)


def _play(kind: StoreKind | None, seeds: Iterable[int]) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        sends, crashes = chance.choice([8, 15, 45]), chance.choice([3, 12])
        recalls, purges = chance.choice([0, 20, 150]), chance.choice([0, 0, 2, 6])
        weights = sends, crashes, recalls, purges
        script = [_step(chance, *weights) for _ in range(chance.randrange(30, 120))]
        if seed % 2:
            _move_records(script, random.Random(f"moves {seed}"))
        script.insert(0, ("batches", chance.choice([1, 3, 1_000])))
        limit, commits = chance.randrange(1, 7), chance.choice(COMMITS)
        try:
            run(kind, script, limit, commits)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("kind", [None, "wheel", "rocksdb"])
def test_every_record_ends_once_where_operations_meet(kind: StoreKind | None) -> None:
    """Invariant: each record ends exactly once, none early, as the log order says."""
    _play(kind, [*range(RUNS[kind]), *(FOUND_FAULTS if kind == "wheel" else ())])


@pytest.mark.long
@pytest.mark.parametrize("kind", [None, "wheel"])
def test_every_record_ends_once_in_thousands_of_runs(kind: StoreKind | None) -> None:
    """Invariant: each record ends exactly once, none early, as the log order says."""
    _play(kind, range(RUNS[kind], SOAK_RUNS))
