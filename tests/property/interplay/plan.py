"""Draw everything that happens under a seed.

Each seed has only some kinds of steps. So these kinds meet more often. For the same reason many
seeds have one partition, one id, or few steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from proxy.config.settings import OverdueLimit, TargetLimit
from proxy.dispatch.release_control import OverdueRule
from proxy.protocol.policy import Policy
from storage.options import StoreKind
from tests.property.test_exactly_once import COMMITS, POLICY
from tests.support.oracle.asked import Rules
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import DISK_BYTES

Step: TypeAlias = tuple[Any, ...]
Draw: TypeAlias = Callable[[random.Random, "Plan"], Step]

KINDS: Final[tuple[StoreKind | None, ...]] = (None, None, None, None, "wheel", "wheel", "wheel")
LARGE: Final = 40
GROUP: Final = "g"


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    kind: StoreKind | None
    scale: int
    """Milliseconds for each ms of POLICY. Pauses and rates need seconds."""
    limit: int
    interval_ms: int
    workers: int
    commits: Executor | None
    """When transactions are really committed."""
    per_target: dict[str, int]
    per_second: int | None
    overdue: tuple[OverdueRule, ...]
    has_small_bounds: bool = False
    """Whether a few records reach the bounds on memory and on work at once."""
    is_retained: bool = True
    """Whether the ingress keeps records below the floors."""
    last: str = ""
    """How all workers are restarted after the script."""
    partitions: tuple[int, ...] = (0, 0, 0, 1)
    """Where producers write. A partition that is listed more often is more likely."""
    idents: str = "ab"
    meets: int = 20
    """How far back recalls and moves reach, at most."""
    script: tuple[Step, ...] = ()

    @property
    def policy(self) -> Policy:
        scale = self.scale
        return replace(
            POLICY,
            levels_ms=tuple(scale * level_ms for level_ms in POLICY.levels_ms),
            max_delay_ms=scale * POLICY.max_delay_ms,
            roll_after_ms=scale * (POLICY.roll_after_ms or 12),
            immunity_ms=scale * POLICY.immunity_ms,
            check_interval_ms=scale * POLICY.check_interval_ms,
        )

    @property
    def rules(self) -> Rules:
        policy = self.policy
        return Rules(
            levels_ms=policy.levels_ms,
            first_level=policy.retry_first_level,
            max_attempts=policy.retry_max_attempts,
            immunity_ms=policy.immunity_ms,
            check_interval_ms=policy.check_interval_ms,
            max_checks=policy.max_checks,
            transaction_ms=0,
        )


def _time(chance: random.Random, scale: int) -> dict[str, str]:
    return chance.choice(
        [
            {"timer-deliver-at": str(START_MS + scale * chance.randrange(-2, 40))},
            {"timer-delay": str(scale * chance.randrange(7))},
            {"timer-delay": str(scale * chance.randrange(30))},
            {"timer-delay": str(scale * chance.randrange(81))},
            {"timer-level": str(chance.randrange(4))},
            {},
        ]
    )


def _asked(chance: random.Random, plan: Plan) -> Step:
    """A record that a producer writes: now, during the next commit, or in a transaction."""
    request = _request(chance, plan)
    when = chance.choice(["now", "now", "meanwhile", "in a transaction"])
    target = chance.choice(["orders", "orders", "bills", "nowhere"])
    return "send", when, request, target, _partition(chance, plan), chance.choice([0, 0, 0, LARGE])


def _request(chance: random.Random, plan: Plan) -> dict[str, str]:
    time_, ident = _time(chance, plan.scale), {"timer-id": chance.choice(plan.idents)}
    prepare = {"timer-transaction": "prepare", "timer-check-topic": "checks"}
    decide = {"timer-transaction": chance.choice(["commit", "commit", "rollback"])}
    forged = chance.randrange(9)
    return chance.choices(
        [
            time_,
            {**time_, **ident},
            {"timer-cancel": ident["timer-id"]},
            {**time_, **ident, **prepare},
            {**ident, **decide},
            {"timer-recall": _back(chance, plan)},
            {"timer-retry-group": GROUP, "timer-attempt": chance.choice("0037")},
            {"timer-delay": "soon"},
            {"timer-hop-from": str(forged), "timer-first-origin": f"{INGRESS}/0/{forged}"},
        ],
        _weights_of_requests(plan.seed),
    )[0]


def _back(chance: random.Random, plan: Plan) -> str:
    """The record that a recall or a move names, as `Play` reads it."""
    before = min(chance.randrange(plan.meets), chance.randrange(plan.meets))
    return f"w{before}" if chance.random() < 0.5 else str(before + 1)


def _burst(chance: random.Random, plan: Plan) -> Step:
    """Several records that are written during one commit, which may rewrite others."""
    partition = _partition(chance, plan)
    near = replace(plan, meets=4)
    steps = [_asked(chance, near) for _ in range(chance.randrange(2, 6))]
    written = [("send", "meanwhile", step[2], step[3], partition, step[5]) for step in steps]
    if chance.random() < 0.3:
        recall = {"timer-recall": str(chance.randrange(1, 4))}
        written.append(("send", "meanwhile", recall, "orders", partition, 0))
    return "together", tuple(written)


def _mid_hop(chance: random.Random, plan: Plan) -> Step:
    """Other records are written while one is rewritten. Then the worker dies."""
    partition, number = _partition(chance, plan), _worker(chance, plan)
    delay = {"timer-delay": str(plan.scale * chance.randrange(20, 60))}
    ident = chance.choice([{}, {"timer-id": chance.choice(plan.idents)}])
    turn, later = ("turn", number, 1), ("pass", plan.scale * chance.choice([0, 2, 5, 8]))
    hold, lift = chance.choice(
        [
            ((), ()),
            ((), ()),
            ((("pause ingest", True),), (("pause ingest", False),)),
            ((("disk", 0),), (("disk", DISK_BYTES),)),
        ]
    )
    _, burst = _burst(chance, replace(plan, partitions=(partition,)))
    recall = "send", "now", {"timer-recall": _back(chance, plan)}, "orders", partition, 0
    return "together", (
        ("send", "now", {**delay, **ident}, "orders", partition, 0),
        ("turn", number, 3),
        *hold,
        ("pass", 13 * plan.scale),
        *burst,
        *[turn] * chance.randrange(1, 4),
        later,
        *[turn] * chance.randrange(3),
        *chance.choice([(), (recall,)]),
        chance.choice([("crash", number), ("other disk", number), _policy(chance, plan)]),
        *lift,
    )


def _weights_of_requests(seed: int) -> list[int]:
    chance = random.Random(f"requests {seed}")
    return [chance.choice([0, 5, 20, 60]) for _ in range(6)] + [chance.choice([0, 0, 5]), 1, 1]


def _partition(chance: random.Random, plan: Plan) -> int:
    return chance.choice(plan.partitions)


def _worker(chance: random.Random, plan: Plan) -> int:
    return chance.randrange(plan.workers)


def _turn(chance: random.Random, plan: Plan) -> Step:
    return "turn", _worker(chance, plan), chance.randrange(1, 4)


def _pass(chance: random.Random, plan: Plan) -> Step:
    return "pass", plan.scale * chance.choice([0, 1, 1, 2, 3, 5, 8, 13, 30])


def _move(chance: random.Random, plan: Plan) -> Step:
    at_ms = START_MS + plan.scale * chance.randrange(-2, 90)
    when = chance.choice(["now", "meanwhile"])
    return "move", when, _back(chance, plan), _partition(chance, plan), at_ms


def _answered(chance: random.Random, plan: Plan) -> Step:
    """A record is moved before its reading is committed. Then the worker starts anew under a
    policy that may reject the record, or roll it at another time."""
    partition, number = _partition(chance, plan), _worker(chance, plan)
    delay = {"timer-delay": str(plan.scale * chance.randrange(8, 50))}
    ident = chance.choice([{}, {"timer-id": chance.choice(plan.idents)}])
    policy = chance.choice(
        [
            {"max_delay_ms": plan.scale * chance.randrange(6, 20)},
            {"roll_after_ms": chance.choice([None, 12 * plan.scale, 25 * plan.scale])},
        ]
    )
    return "together", (
        ("send", "now", {**delay, **ident}, "orders", partition, 0),
        *chance.choice([(), (("fault", "before", "F"),)]),
        ("turn", number, chance.randrange(1, 3)),
        ("move", "now", f"w{chance.choice([0, 0, 1])}", partition, _move(chance, plan)[4]),
        ("policy", number, policy),
    )


def _purge(chance: random.Random, plan: Plan) -> Step:
    bounds = [
        chance.choice([None, START_MS]),
        chance.choice([None, START_MS + 40 * plan.scale]),
    ]
    when, pattern = chance.choice(["now", "meanwhile"]), chance.choice(["orders", "*"])
    return "purge", when, pattern, *bounds, _partition(chance, plan)


def _pause(chance: random.Random, plan: Plan) -> Step:
    patterns = chance.choice([("orders",), ("*",), ("b*", "o*"), ("bills",), (), ()])
    return "pause", patterns, chance.choice([None, None, None, 1, 3, 20, 1_000])


def _limit(chance: random.Random, plan: Plan) -> Step:
    limits: dict[str, TargetLimit] = {}
    for pattern in chance.choice([(), (), ("orders",), ("*",), ("o*", "bills")]):
        action = chance.choice(["deliver", "dead-letter", "drop"])
        older_than_ms = plan.scale * chance.randrange(1, 40)
        overdue = OverdueLimit(older_than_ms=older_than_ms, action=action)
        per_second = chance.choice([1, 5, 50])
        limits[pattern] = chance.choice(
            [
                TargetLimit(per_second=per_second),
                TargetLimit(overdue=overdue),
                TargetLimit(per_second=per_second, overdue=overdue),
            ]
        )
    return "limit", limits


def _overdue(chance: random.Random, scale: int) -> tuple[OverdueRule, ...]:
    actions: list[Literal["dead-letter", "drop"]] = ["dead-letter", "drop"]
    action = chance.choice(actions)
    rule = OverdueRule(chance.choice(["*", "orders"]), scale * chance.randrange(1, 60), action)
    return chance.choice([(), (rule,), (OverdueRule("o*", 0, "deliver"), rule)])


def _release(chance: random.Random, plan: Plan) -> Step:
    per_target = chance.choice([{}, {"orders": 8}, {"*": 20}])
    per_second = chance.choice([None, 40])
    return "release", _worker(chance, plan), per_target, _overdue(chance, plan.scale), per_second


def _admission(chance: random.Random, plan: Plan) -> Step:
    settings = chance.choice(
        [
            {},
            {"records": chance.randrange(1, 5)},
            {"size_bytes": chance.randrange(20, 300)},
            {"per_target": {"orders": chance.randrange(1, 4)}},
            {"per_target": {"*": 2}, "bytes_per_target": {"orders": chance.randrange(10, 100)}},
        ]
    )
    return "admission", _worker(chance, plan), settings


def _policy(chance: random.Random, plan: Plan) -> Step:
    changes = chance.choice(
        [
            {"max_delay_ms": plan.scale * chance.randrange(6, 60)},
            {"roll_after_ms": chance.choice([None, 12 * plan.scale, 25 * plan.scale])},
            {"retry_max_attempts": chance.randrange(1, 4)},
            {"deny": chance.choice([(), ("bills",)])},
            {"max_past_ms": chance.choice([None, plan.scale * chance.randrange(1, 30)])},
            {"serves": chance.choice([None, (), ("retry", "transaction"), ("cancel", "recall")])},
        ]
    )
    return "policy", _worker(chance, plan), changes


def _refuse(chance: random.Random, plan: Plan) -> Step:
    kinds = ["large", "large", "gone", "unauthorised", "untimely", "leaderless"]
    what = chance.choice([*kinds, "nothing", "nothing", "nothing"])
    return "refuse", what, chance.choice(["orders", "bills", INGRESS])


def _fault(chance: random.Random, plan: Plan) -> Step:
    return "fault", *chance.choice(
        [("before", "F"), ("after", "F"), ("before", "R"), ("before", "A")]
    )


def _unreadable(chance: random.Random, plan: Plan) -> Step:
    partition = _partition(chance, plan)
    sent = [_asked(chance, plan) for _ in range(chance.randrange(1, 4))]
    batch = tuple(("send", "now", step[2], step[3], partition, step[5]) for step in sent)
    return "unreadable", partition, batch


def _throttle(chance: random.Random, _: Plan) -> Step:
    return "throttle", chance.choice([2, 4, 9, None, None])


def _rebalance(chance: random.Random, plan: Plan) -> Step:
    """A partition goes to the other worker. A single worker loses it and gets it back."""
    if plan.workers == 1:
        return "come back", chance.choice(["on_revoke", "on_lost"]), _partition(chance, plan)
    return "assign", chance.choice(["now", "meanwhile", "before offsets"]), chance.randrange(2)


FEATURES: Final[dict[str, tuple[int, Draw]]] = {
    "burst": (15, _burst),
    "mid-hop": (6, _mid_hop),
    "move": (12, _move),
    "answered": (6, _answered),
    "purge": (4, _purge),
    "pause": (5, _pause),
    "pause ingest": (3, lambda chance, _: ("pause ingest", chance.choice([True, False]))),
    "limit": (4, _limit),
    "release": (2, _release),
    "worker rate": (3, lambda chance, _: ("worker rate", chance.choice([None, 3, 20, 100]))),
    "admission": (3, _admission),
    "disk": (3, lambda chance, _: ("disk", chance.choice([0, DISK_BYTES, DISK_BYTES]))),
    "crash": (6, lambda chance, plan: ("crash", _worker(chance, plan))),
    "stop": (3, lambda chance, plan: ("stop", _worker(chance, plan))),
    "other disk": (3, lambda chance, plan: ("other disk", _worker(chance, plan))),
    "fault": (4, _fault),
    "assign": (5, _rebalance),
    "evict": (2, lambda chance, _: ("evict", chance.randrange(2))),
    "clock": (2, lambda chance, plan: ("clock", plan.scale * chance.randrange(-8, 9))),
    "jump": (2, lambda chance, plan: ("jump", plan.scale * chance.randrange(1, 30))),
    "sleep": (2, lambda chance, plan: ("sleep", plan.scale * chance.randrange(1, 30))),
    "policy": (3, _policy),
    "bodies": (
        2,
        lambda chance, plan: ("bodies", _worker(chance, plan), chance.choice(["local", "kafka"])),
    ),
    "batches": (
        2,
        lambda chance, plan: ("batches", _worker(chance, plan), chance.choice([1, 3, 1_000])),
    ),
    "refuse": (4, _refuse),
    "end": (5, lambda chance, plan: ("end", _partition(chance, plan), chance.random() < 0.5)),
    "retention": (3, lambda _chance, _: ("retention",)),
    "unreadable": (4, _unreadable),
    "skip": (4, lambda _chance, _: ("skip",)),
    "throttle": (4, _throttle),
}
"""Weight and draw function of each kind of step."""


def draw(seed: int) -> Plan:
    chance = random.Random(seed)
    plan = _settings(seed, chance)
    share = chance.choice([0.1, 0.2, 0.4, 0.8])
    steps: list[tuple[int, Draw]] = [
        (chance.choice([20, 40, 80]), _asked),
        (50 if plan.workers == 1 else 90, _turn),
        (30, _pass),
        *(one for one in FEATURES.values() if chance.random() < share),
    ]
    weights, draws = zip(*steps, strict=True)
    most = chance.choice([15, 40, 110])
    drawn = chance.choices(draws, weights, k=chance.randrange(most // 4, most))
    return replace(plan, script=tuple(one(chance, plan) for one in drawn))


def _settings(seed: int, chance: random.Random) -> Plan:
    scale = chance.choice([1, 1, 100])
    has_rates = scale > 1 and chance.random() < 0.3
    return Plan(
        seed,
        kind=chance.choice(KINDS),
        scale=scale,
        limit=chance.choice([1, 2, 3, 5, 8, 100]),
        interval_ms=chance.choice([0, 0, 10 * scale]),
        workers=chance.choice([1, 1, 2]),
        commits=chance.choice(COMMITS),
        per_target={"orders": 8} if has_rates else {},
        per_second=40 if scale > 1 and chance.random() < 0.2 else None,
        overdue=_overdue(chance, scale) if chance.random() < 0.2 else (),
        has_small_bounds=chance.random() < 0.5,
        is_retained=chance.random() < 0.8,
        last=chance.choice(["", "", "crash", "stop", "other disk", "other disk"]),
        partitions=chance.choice([(0,), (0, 0, 0, 1)]),
        idents=chance.choice(["a", "ab"]),
        meets=chance.choice([3, 6, 20]),
    )
