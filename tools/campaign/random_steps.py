"""Random steps of a run: producers' records, and events such as crashes and rebalances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, Final

from proxy.protocol.policy import Policy
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.world import World
from tools.campaign.scene import FAR_MS, OWN, PARTITIONS, POLICY, SIGNER, named

Step = tuple[object, ...]
Headers = list[tuple[str, bytes | None]]
ALIASES: Final = ("cesium", "rabbitmq", "nats")
TARGETS: Final = (*("orders",) * 6, "bills", "strict", "strict", "small", "drop", "bury", "nowhere")
PASSES_MS: Final = (0, 1, 150, 900, 2_500, 6_000, 11_000, 25_000)
MOVES: Final = 0.3
"""Probability of a move per step, in runs with moves."""
VALUES: Final = (b"value", b"", None, b"v" * 40, b"v" * 190, b"v" * 300)


def drawn_policy(chance: Random) -> Policy:
    aliases = ALIASES if chance.random() < 0.3 else ()
    roll_after_ms = chance.choice([None, 40_000, 60_000, 90_000])
    return replace(POLICY, aliases=aliases, roll_after_ms=roll_after_ms)


def drawn_steps(
    chance: Random, run: int, world: World, moves: Random | None = None
) -> Iterator[Step]:
    """Yield the steps up to the next moment. `moves` draws the moves. None means no moves."""
    sends, crashes = chance.choice([12, 25, 45]), chance.choice([1, 6])
    for _ in range(chance.randrange(10, 36)):
        yield from _step(chance, run, world, sends, crashes)
        if moves is not None and moves.random() < MOVES:
            yield from _moved(moves, run, world)


def tail(chance: Random, world: World) -> Iterator[Step]:
    run = world.kafka.first_partition // PARTITIONS
    for _ in range(chance.choice([0, 0, 1, 3])):
        yield "write", _written(chance, run, world, _request(chance, run, world))


def _step(chance: Random, run: int, world: World, sends: int, crashes: int) -> list[Step]:
    first = run * PARTITIONS
    write = chance.choice(["write", "write", "write", "write meanwhile"])
    steps: list[list[Step]] = [
        [(write, _written(chance, run, world, _request(chance, run, world)))],
        [("turn", chance.randrange(1, 4))],
        [("pass", chance.choice(PASSES_MS))],
        [("crash",)],
        [("stop",)],
        [("fault", chance.choice(["before", "after"]), chance.choice("FRA"))],
        [("rebalance", chance.choice(["on_revoke", "on_lost"]), first + chance.randrange(2))],
        [(chance.choice(["behind", "ahead"]), chance.randrange(1, 4_000))],
        [("sleep", chance.randrange(1, 4_000))],
        [("policy", _changes(chance))],
        [("bodies", chance.choice(["local", "kafka"]))],
        [("pause", [named(kind, run) for kind in chance.choice([[], [], ["orders"], ["bills"]])])],
        [("create", named("nowhere", run))],
        _pair(chance, run, world),
        _stream(chance, run),
        _taken_back(chance, run, world),
        _decided(chance, run, world),
        _recalled(chance, run, world),
        _purged(chance, run, world),
    ]
    weights = [sends, 20, 14, crashes, 1, 1, 1, 1, 1, 1, 1, 2, 0.5, 2, 1.5, 6, 5, 6, 4]
    return chance.choices(steps, weights)[0]


def _changes(chance: Random) -> dict[str, Any]:
    return chance.choice(
        [
            {"max_delay_ms": chance.choice([86_400_000, 50_000])},
            {"roll_after_ms": chance.choice([None, 40_000, 60_000])},
            {"retry_max_attempts": chance.randrange(2, 5)},
            {"aliases": chance.choice([(), ALIASES])},
            {
                "levels_ms": chance.choice([(1_000, 5_000, 10_000), (2_000, 4_000, 8_000)]),
                "proves_recalls": True,
            },
        ]
    )


def _written(
    chance: Random, run: int, world: World, headers: Headers, partition: int | None = None
) -> dict[str, Any]:
    number = chance.choice([0, 0, 1]) if partition is None else partition
    users: Headers = [("trace", b"%d" % chance.randrange(1_000)), ("mine", None)]
    count = chance.choice([0, 1, 1, 2])
    own: bytes | None = chance.choice(VALUES)
    serial = b"%d/" % chance.randrange(10**6)
    return {
        "headers": [*headers, *users[:count]],
        "key": chance.choice([b"key", b"k-%d" % chance.randrange(50), None]),
        "value": None if own is None else serial + own,
        "partition": run * PARTITIONS + number,
    }


def _pair(chance: Random, run: int, world: World) -> list[Step]:
    at_ms = world.time.broker_now_ms + chance.choice([-5, 2_000, 9_000])
    headers = _to("orders", run, ("timer-partition", "1"), ("timer-deliver-at", str(at_ms)))
    number = chance.randrange(PARTITIONS)
    return [("write", _written(chance, run, world, headers, number)) for _ in range(2)]


def _stream(chance: Random, run: int) -> list[Step]:
    number, steps = chance.randrange(PARTITIONS), list[Step]()
    for serial in range(4):
        written = {
            "headers": _to("orders", run, ("mine", "stream")),
            "key": b"stream",
            "value": b"%d" % serial * 400,
            "partition": run * PARTITIONS + number,
        }
        steps += [("write", written), ("turn", 2), ("pass", 1_000)]
    return steps


def _taken_back(chance: Random, run: int, world: World) -> list[Step]:
    ident, number = _ident(chance), chance.randrange(PARTITIONS)
    delay = {"timer-delay": chance.choice(["30s", "50s", "3h"])}
    first = _to("orders", run, *ident.items(), *delay.items())
    cancel = _headers({"timer-cancel": ident["timer-id"]})
    later = chance.choice([cancel, _to("bills", run, *ident.items(), *delay.items())])
    return [
        ("write", _written(chance, run, world, first, number)),
        ("turn", chance.choice([1, 2])),
        ("pass", chance.choice([0, 900, 11_000])),
        ("write", _written(chance, run, world, later, number)),
        ("turn", chance.choice([1, 2])),
    ]


def _decided(chance: Random, run: int, world: World) -> list[Step]:
    ident, number = _ident(chance), chance.randrange(PARTITIONS)
    prepare = {**ident, "timer-transaction": "prepare", **_checks(chance, run)}
    half = _to("orders", run, *prepare.items(), ("timer-delay", chance.choice(["1s", "40s"])))
    decision = chance.choice(["commit", "commit", "rollback"])
    return [
        ("write", _written(chance, run, world, half, number)),
        ("turn", 1),
        ("pass", chance.choice([0, 900, 7_000])),
        (
            "write",
            _written(
                chance, run, world, _headers({**ident, "timer-transaction": decision}), number
            ),
        ),
    ]


def _recalled(chance: Random, run: int, world: World) -> list[Step]:
    number = chance.randrange(PARTITIONS)
    partition = run * PARTITIONS + number
    end = world.kafka.end(partition)
    delay = {"timer-delay": chance.choice(["1s", "30s", "50s", "3h"])}
    ident = chance.choice([{}, {}, _ident(chance)])
    target = chance.choice(["orders", "orders", "nowhere"])
    offset = chance.choice([end, end, end, max(0, end - chance.randrange(1, 9))])
    origin = f"{OWN.ingress}/{partition}/{offset}"
    written = _to(target, run, *ident.items(), *delay.items())
    return [
        ("write", _written(chance, run, world, written, number)),
        ("turn", chance.choice([1, 2])),
        ("pass", chance.choice([0, 900, 11_000, 25_000])),
        ("turn", chance.choice([1, 2])),
        (
            chance.choice(["write", "write meanwhile"]),
            _written(chance, run, world, _headers({"timer-recall": origin}), number),
        ),
        ("turn", 1),
    ]


def _moved(chance: Random, run: int, world: World) -> list[Step]:
    """Return a move of an older record, or of a new one. Some moves come too late."""
    number, now_ms = chance.randrange(PARTITIONS), world.time.broker_now_ms
    is_late = chance.random() < 0.4
    delay = {"timer-delay": "5s" if is_late else chance.choice(["20s", "50s", "70s", "3h"])}
    target = chance.choice(["orders", "orders", "bills", "nowhere"])
    written = _to(target, run, *chance.choice([{}, {}, _ident(chance)]).items(), *delay.items())
    before = 1 if is_late else min(chance.randrange(1, 9), chance.randrange(1, 9))
    at_ms = now_ms + chance.choice([-5, 2_000, 20_000, 50_000, 70_000, FAR_MS])
    again = "again meanwhile" if is_late else chance.choice(["again", "again meanwhile"])
    is_new = is_late or chance.random() < 0.5
    return [
        *([("write", _written(chance, run, world, written, number))] if is_new else []),
        ("turn", 2 if is_late else chance.choice([1, 2])),
        ("pass", 0 if is_late else chance.choice([0, 0, 900, 11_000])),
        *[(again, before, run * PARTITIONS + number, at_ms)] * chance.choice([1, 1, 1, 2]),
        ("pass", 25_000 if is_late else 0),
        ("turn", 3 if is_late else chance.choice([0, 1, 2])),
    ]


def _purged(chance: Random, run: int, world: World) -> list[Step]:
    number, now_ms = chance.randrange(PARTITIONS), world.time.broker_now_ms
    written = [
        _to(
            chance.choice(["orders", "orders", "bills", "nowhere"]),
            run,
            *chance.choice([{}, {}, _ident(chance)]).items(),
            ("timer-delay", chance.choice(["1s", "20s", "50s", "70s", "3h"])),
        )
        for _ in range(chance.choice([1, 2, 4]))
    ]
    return [
        *(("write", _written(chance, run, world, one, number)) for one in written),
        ("turn", chance.choice([1, 2])),
        ("pass", chance.choice([0, 900, 11_000, 25_000])),
        ("turn", chance.choice([0, 1, 2])),
        (chance.choice(["write", "write meanwhile"]), _purge(chance, run, number, now_ms)),
        ("turn", chance.choice([0, 1, 3])),
    ]


def _purge(chance: Random, run: int, number: int, now_ms: int) -> dict[str, Any]:
    pattern = chance.choice(["*", f"orders-{run}", "[!n]*", "?i*", "ord*"])
    times = chance.choice(
        [
            {},
            {},
            {"timer-purge-from": str(now_ms + chance.choice([0, 20_000, 60_000]))},
            {"timer-purge-to": str(now_ms + chance.choice([20_000, 60_000, FAR_MS]))},
        ]
    )
    partition, headers = run * PARTITIONS + number, _headers({"timer-purge": pattern, **times})
    signed = list(SIGNER.signed(partition, None, None, headers))
    return {"headers": signed, "key": None, "value": None, "partition": partition}


def _to(kind: str, run: int, *more: tuple[str, str]) -> Headers:
    return _headers({"timer-topic": named(kind, run), **dict(more)})


def _headers(texts: dict[str, str]) -> Headers:
    return [(name, text.encode()) for name, text in texts.items()]


def _time(chance: Random, world: World) -> dict[str, str]:
    now_ms = world.time.broker_now_ms
    grid_ms = START_MS + (now_ms - START_MS) // 5_000 * 5_000 + 5_000 * chance.randrange(4)
    return chance.choice(
        [
            {},
            {"timer-deliver-at": str(grid_ms)},
            {"timer-deliver-at": str(now_ms - chance.randrange(9_000))},
            {"timer-delay": str(chance.randrange(3_000))},
            {"timer-delay": f"{chance.randrange(1, 40)}s"},
            {"timer-delay": f"PT{chance.randrange(30, 150)}S"},
            {"timer-delay": str(FAR_MS + chance.randrange(9_000))},
            {"timer-level": str(chance.randrange(5))},
        ]
    )


def _ident(chance: Random) -> dict[str, str]:
    return {"timer-id": chance.choice(["a", "b", "c", "ü"])}


def _request(chance: Random, run: int, world: World) -> Headers:
    target = {"timer-topic": named(chance.choice(TARGETS), run)}
    time, ident = _time(chance, world), _ident(chance)
    draws: list[tuple[int, dict[str, str]]] = [
        (24, {**target, **time}),
        (16, {**target, **time, **ident}),
        (9, {"timer-cancel": ident["timer-id"]}),
        (7, {**target, **time, **ident, "timer-transaction": "prepare", **_checks(chance, run)}),
        (7, {**ident, "timer-transaction": chance.choice(["commit", "commit", "rollback"])}),
        (5, {**target, **time, **_place(chance)}),
        (5, _retry(chance, run)),
        (6, {**target, **time, **_mistake(chance, run)}),
        (4, _foreign(chance, target["timer-topic"])),
        (1, {**target, "timer-hop-from": "0", "timer-first-origin": "timer.ingress/0/0"}),
    ]
    return _headers(chance.choices([d for _, d in draws], [w for w, _ in draws])[0])


def _checks(chance: Random, run: int) -> dict[str, str]:
    checks = {"timer-check-topic": named("checks", run)}
    return chance.choice([{}, checks, {**checks, "timer-check-immunity": "12s"}])


def _place(chance: Random) -> dict[str, str]:
    return chance.choice(
        [{"timer-key": "other"}, {"timer-partition": "1"}, {"timer-partition": "9"}]
    )


def _retry(chance: Random, run: int) -> dict[str, str]:
    group = {"timer-retry-group": f"g{run}"}
    return {**group, "timer-attempt": str(chance.choice([0, 1, 2, 3, 4, 16]))}


def _mistake(chance: Random, run: int) -> dict[str, str]:
    return chance.choice(
        [
            {"timer-delay": "soon"},
            {"timer-dealy": "5s"},
            {"timer-topic": named("denied", run)},
            {"timer-topic": "a b"},
            {"timer-id": ""},
            {"timer-level": "high"},
            {"timer-transaction": "prepare"},
            {"timer-partition": "x"},
        ]
    )


def _foreign(chance: Random, target: str) -> dict[str, str]:
    return chance.choice(
        [
            {"timer-topic": target, "x-delay": str(chance.randrange(20_000))},
            {"timer-topic": target, "cesium-delay-ms": str(chance.randrange(20_000))},
            {"Nats-Schedule": "@at 2027-01-15T08:01:00Z", "Nats-Schedule-Target": target},
        ]
    )
