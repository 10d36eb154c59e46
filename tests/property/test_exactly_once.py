"""Whole runs of the proxy on the stand-in Kafka: crashes, limits, clocks, in any order."""

import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocol.policy import Policy
from proxy.protocol.position import Position
from storage.ids.register import Register
from storage.options import StoreKind
from storage.store import Store
from tests.support.oracle.asked import Rules
from tests.support.oracle.conservation import violations
from tests.support.simulation.executors import AtOnce, WhenAsked
from tests.support.simulation.local_store import register_in, store_in
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import kafka_error
from tests.support.simulation.world import World

PARTITIONS = 2
TARGETS = ("orders", "bills")
POLICY = Policy(
    levels_ms=(5, 10, 40),
    max_delay_ms=60,
    roll_after_ms=12,
    retry_first_level=1,
    retry_max_attempts=3,
    immunity_ms=6,
    check_interval_ms=10,
    max_checks=2,
    recalls_in="timer.ingress",
    proves_recalls=True,
)
RULES = Rules(
    levels_ms=POLICY.levels_ms,
    first_level=POLICY.retry_first_level,
    max_attempts=POLICY.retry_max_attempts,
    immunity_ms=POLICY.immunity_ms,
    check_interval_ms=POLICY.check_interval_ms,
    max_checks=POLICY.max_checks,
    transaction_ms=0,
)
LEAST_ROLL_MS = 2 * POLICY.immunity_ms
"""With less time half messages would be decided sooner, which the judge does not know."""
COMMITS = (None, AtOnce(), WhenAsked())
"""Each turn ends with its transaction, or the next turn confirms a commit that came late or long
ago."""

ids = st.sampled_from(["a", "b"])
times: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.integers(-2, 12).map(lambda ms: {"timer-deliver-at": str(START_MS + ms)}),
    st.integers(0, 6).map(lambda ms: {"timer-delay": str(ms)}),
    st.integers(0, 80).map(lambda ms: {"timer-delay": str(ms)}),
    st.integers(0, 3).map(lambda level: {"timer-level": str(level)}),
    st.just({}),
)
forged_hops: st.SearchStrategy[dict[str, str]] = st.builds(
    lambda at, ident: {
        "timer-hop-from": str(at),
        "timer-first-origin": f"timer.ingress/0/{at}",
        **ident,
    },
    st.integers(0, 9),
    st.one_of(st.just({}), ids.map(lambda ident: {"timer-id": ident})),
)
recalls = st.integers(1, 12).map(lambda before: {"timer-recall": str(before)})
"""Distance in offsets to the recalled record. `_send` turns it into an origin."""
KEYS = b"key", b"other", None
requests = st.one_of(
    times,
    st.just({"timer-delay": "soon"}),
    st.builds(lambda time, ident: {**time, "timer-id": ident}, times, ids),
    st.builds(lambda time, ident: {**time, "timer-id": ident}, times, ids),
    ids.map(lambda ident: {"timer-cancel": ident}),
    st.builds(
        lambda time, ident: {
            **time,
            "timer-id": ident,
            "timer-transaction": "prepare",
            "timer-check-topic": "checks",
        },
        times,
        ids,
    ),
    st.builds(
        lambda ident, what: {"timer-id": ident, "timer-transaction": what},
        ids,
        st.sampled_from(["commit", "rollback"]),
    ),
    st.builds(lambda time, forged: {**time, **forged}, times, forged_hops),
    recalls,
)
sends = st.tuples(
    st.sampled_from(["send", "send", "send meanwhile"]),
    requests,
    st.sampled_from([*TARGETS, "nowhere"]),
    st.integers(0, PARTITIONS - 1),
)
purges = st.tuples(
    st.sampled_from(["purge", "purge meanwhile"]),
    st.sampled_from([*TARGETS, "*"]),
    st.one_of(st.none(), st.integers(START_MS, START_MS + 60)),
    st.one_of(st.none(), st.integers(START_MS, START_MS + 60)),
    st.integers(0, PARTITIONS - 1),
)
faults = st.one_of(
    st.tuples(st.just("crash")),
    st.tuples(st.just("stop")),
    st.tuples(st.sampled_from(["move", "move after a crash"])),
    st.tuples(st.just("fault"), st.sampled_from(["before", "after"]), st.sampled_from("FRA")),
    st.tuples(
        st.just("rebalance"),
        st.sampled_from(["on_revoke", "on_lost"]),
        st.integers(0, PARTITIONS - 1),
    ),
    st.tuples(st.just("behind"), st.integers(1, 8)),
    st.tuples(st.just("ahead"), st.integers(1, 60)),
    st.tuples(st.sampled_from(["jump", "sleep"]), st.integers(1, 30)),
    st.tuples(st.just("batches"), st.sampled_from([1, 3])),
    st.tuples(
        st.just("policy"),
        st.fixed_dictionaries(
            {},
            optional={
                "max_delay_ms": st.integers(POLICY.immunity_ms, 60),
                "roll_after_ms": st.one_of(st.none(), st.integers(LEAST_ROLL_MS, 30)),
                "retry_max_attempts": st.integers(1, 4),
                "max_past_ms": st.one_of(st.none(), st.integers(1, 30)),
                "serves": st.sampled_from(
                    [None, (), ("retry", "transaction"), ("cancel", "recall")]
                ),
            },
        ),
    ),
)
bodies = st.tuples(st.just("bodies"), st.sampled_from(["local", "kafka"]))
moves = st.one_of(
    st.tuples(st.just("turn"), st.integers(1, 3)),
    st.tuples(st.just("pass"), st.integers(0, 4)),
    st.tuples(st.just("pass"), st.integers(0, 30)),
)
steps = st.lists(st.one_of(sends, sends, purges, moves, moves, faults), min_size=15, max_size=80)
steps_with_bodies = st.lists(
    st.one_of(sends, sends, moves, moves, faults, bodies), min_size=15, max_size=80
)

FAULTS = {
    "F": partial(kafka_error, KafkaError._FENCED, fatal=True),
    "R": partial(kafka_error, KafkaError._TIMED_OUT, retriable=True),
    "A": partial(kafka_error, KafkaError._TIMED_OUT, txn_requires_abort=True),
}
"""Factory of a new error each time: a raised error would keep its run's whole world alive."""


def perform(world: World, step: tuple[object, ...]) -> None:
    match step:
        case (
            "send" | "send meanwhile" | "purge" | "purge meanwhile" | "again" | "again meanwhile",
            *_,
        ):
            _write(world, step)
        case ("turn", int() as times):
            world.turn(times)
        case ("pass", int() as elapsed_ms):
            world.time.pass_ms(elapsed_ms)
        case ("behind" | "ahead" | "jump" | "sleep", int()):
            _move_clocks(world, step)
        case ("crash" | "stop" as how,):
            world.crash() if how == "crash" else world.stop()
        case ("move" | "move after a crash" as how,):
            world.stop() if how == "move" else world.crash()
            world.machine = 1 - world.machine
        case ("rebalance", str() as callback, int() as partition):
            world.kafka.rebalances.append((callback, partition))
        case ("fault", str() as when, str() as kind) if not (when == "after" and kind in "AR"):
            world.kafka.commit_faults.append((when, FAULTS[kind]()))
        case ("bodies" | "batches" | "policy", _):
            world.crash()
            _start_otherwise(world, step)


def _write(world: World, step: tuple[object, ...]) -> None:
    write: Callable[[], object]
    match step:
        case (str() as when, dict() as request, str() as target, int() as partition):
            write = partial(_send, world, request, target, partition)
        case (str() as when, int() as before, int() as partition, int() as deliver_at_ms):
            offset = max(0, world.kafka.end(partition) - before)
            write = world.moving(partition, offset, deliver_at_ms)
        case (str() as when, *purged):
            write = partial(world.purge, *purged)  # type: ignore[arg-type]
    world.kafka.meanwhile.append(write) if when.endswith("meanwhile") else write()


def _move_clocks(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("behind" | "ahead" as where, int() as wrong_ms):
            world.crash()
            world.time.step_ms(-wrong_ms if where == "behind" else wrong_ms)
        case ("jump", int() as jump_ms):
            world.time.step_ms(jump_ms)
        case ("sleep", int() as asleep_ms):
            world.time.sleep_ms(asleep_ms)
            world.ask_broker_time()


def _start_otherwise(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("bodies", str() as kept):
            world.bodies = kept
        case ("batches", int() as batch_records):
            world.batch_records = batch_records
        case ("policy", dict() as changes):
            world.policy = replace(world.policy, **changes)


def _send(world: World, request: dict[str, str], target: str, partition: int) -> None:
    end = world.kafka.end(partition)
    value = f"{partition}/{end}".encode()
    key = KEYS[end % 3]
    if "timer-recall" in request:
        recalled = max(0, end - int(request["timer-recall"]))
        request, key = recall_of(partition, recalled, end)
    world.send({"timer-topic": target, **request}, key, value, partition)


def recall_of(partition: int, recalled: int, end: int) -> tuple[dict[str, str], bytes | None]:
    """Return headers and key of a recall at the end of a partition. The key may be wrong, and the
    id may be wrong or missing."""
    ident = {"timer-id": "ab"[recalled % 2]} if end % 5 == 0 else {}
    is_another = (end + recalled) % 4 == 0
    return (
        {"timer-recall": f"timer.ingress/{partition}/{recalled}", **ident},
        KEYS[(recalled + is_another) % 3],
    )


def check_conservation(world: World) -> None:
    assert violations(world.evidence(("checks",)), RULES) == []


def run(
    kind: StoreKind | None,
    script: list[tuple[object, ...]],
    limit: int,
    commits: Executor | None = None,
) -> None:
    """Play the script, then let time pass until all records must have ended.

    With `kind`, two machines have a store each on their own disks.
    """
    world = World(PARTITIONS, None, limit, (*TARGETS, "checks"), commits)
    world.policy, world.max_step_ms = POLICY, 0
    with tempfile.TemporaryDirectory() as folder:
        if kind is not None:
            give_disks(world, kind, Path(folder))
        try:
            for step in script:
                perform(world, step)
            world.come_to_an_end()
        finally:
            world.crash()  # an open RocksDB still writes while its folder is removed
    check_conservation(world)


def give_disks(world: World, kind: StoreKind, folder: Path) -> None:
    def open_store(partition: int, at: Position) -> Store:
        return store_in(kind, folder / str(world.machine))(partition, at)

    def open_register(partition: int, at: Position, covered: int) -> Register:
        return register_in(folder / str(world.machine))(partition, at, covered)

    world.open_store, world.open_register = open_store, open_register


@settings(max_examples=300, deadline=None)
@given(steps, st.integers(1, 6), st.sampled_from(COMMITS))
def test_every_record_ends_once_and_never_early_without_local_state(
    script: list[tuple[object, ...]], limit: int, commits: Executor | None
) -> None:
    """Invariant: each record ends exactly once and none early, from the broker alone."""
    run(None, script, limit, commits)


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(1, 6), st.sampled_from(COMMITS))
def test_every_record_ends_once_and_never_early_with_local_state(
    script: list[tuple[object, ...]], limit: int, commits: Executor | None
) -> None:
    """Invariant: each record ends exactly once and none early, with the wheel."""
    run("wheel", script, limit, commits)


@settings(max_examples=75, deadline=None)
@given(steps, st.integers(1, 6))
def test_every_record_ends_once_and_never_early_with_rocksdb(
    script: list[tuple[object, ...]], limit: int
) -> None:
    """Invariant: each record ends exactly once and none early, with RocksDB."""
    run("rocksdb", script, limit)


@settings(max_examples=200, deadline=None)
@given(steps_with_bodies, st.integers(1, 6))
def test_every_record_ends_once_and_never_early_with_bodies_in_kafka(
    script: list[tuple[object, ...]], limit: int
) -> None:
    """Invariant: each record ends once and none early while `bodies` changes.

    The dense runs cover RocksDB: opening it costs as much as a whole run with the wheel.
    """
    run("wheel", [("bodies", "kafka"), *script], limit)
