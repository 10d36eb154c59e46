"""Play the script of a seed, and judge the run by the records in the topics."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

from confluent_kafka import KafkaException

from proxy.config.settings import AdmissionSettings, Resumed
from proxy.dispatch import paused_records
from proxy.dispatch.release_control import ReleaseControl, WorkerRateLimit
from proxy.protocol.position import Position
from proxy.publishing import kafka_transactions, throttling
from proxy.scheduling import half_messages, identities, missed_moves, purges, shard
from proxy.session import limits, pipeline
from tests.property.interplay.plan import GROUP, LARGE, Plan, Step
from tests.property.test_exactly_once import FAULTS, KEYS, TARGETS, give_disks, recall_of
from tests.support.oracle.asked import is_control
from tests.support.oracle.conservation import violations
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS, Record
from tests.support.simulation.world import DISK_BYTES, World

PARTITIONS: Final = 2
TOPICS: Final = (*TARGETS, "checks", f"retry.{GROUP}", f"dlq.{GROUP}")
MOST_ROUNDS: Final = 2_500
"""A look for paused records through a tiny wheel takes thousands of turns for seven days."""
SMALL_BOUNDS: Final[tuple[tuple[Any, dict[str, Any]], ...]] = (
    (shard, {"PARSED_AT_ONCE": 3, "WORTH_A_FLUSH": 2, "FLUSHED_AT_ONCE": 2, "FLUSH_EVERY_MS": 10}),
    (purges, {"LOOKED_AT": 2}),
    (identities, {"MOST_PAUSES": 2, "MOST_READ": 1}),
    (missed_moves, {"CHUNK_OFFSETS": 8, "CHUNK_BYTES": 1}),
    (half_messages, {"HELD_BYTES": 1, "READ_AT_ONCE": 1}),
    (paused_records, {"LOOKED_AT": 2, "MOST_UNREAD": 2}),
    (pipeline, {"SWEPT_AT_ONCE": 2}),
    (throttling, {"TELLING_BYTES": 800, "LEAST_BYTES": 100}),
)
AT_ONCE: Final[tuple[tuple[Any, dict[str, Any]], ...]] = (
    (limits, {"LOOK_EVERY_MS": 1}),
    (kafka_transactions, {"SENT_WITHIN": 0}),
)
"""Changed in every run, so that nothing waits in real time."""
BY_HAND: Final = ("pause", "limit", "move", "worker rate", "crash", "release")
"""Kinds of steps after which records may be rewritten once more than by time alone."""


class Play:
    """One run of a group of proxies and a broker, with their producers and operators."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self._at_work: set[int] = set()
        first = World(PARTITIONS, None, plan.limit, TOPICS, plan.commits)
        self.worlds = [first]
        for _ in range(plan.workers - 1):
            self.worlds.append(
                World(PARTITIONS, None, plan.limit, commits=plan.commits, beside=first)
            )
        self.kafka, self.time, self.operators = first.kafka, first.time, first.policies
        self.kafka.throttles_ms = 10 * plan.scale
        self._release = [(plan.per_target, plan.overdue, plan.per_second)] * plan.workers
        if plan.workers > 1:
            self.kafka.wanted = {0: 0, 1: 1}
        for number, world in enumerate(self.worlds):
            world.policy, world.max_step_ms = plan.policy, 0
            world.interval_ms = plan.interval_ms
            if plan.kind is not None:
                give_disks(world, plan.kind, folder / str(number))
            self._start(number)

    def perform(self, step: Step) -> None:
        match step[0]:
            case "send" | "move" | "purge":
                self._produce(step)
            case "end" | "refuse" | "retention" | "fault" | "throttle":
                self._change_broker(step)
            case "unreadable" | "skip":
                self._spoil(step)
            case "pause" | "pause ingest" | "limit" | "worker rate":
                self._operate(step)
            case "crash" | "stop" | "other disk":
                self._restart(step)
            case "admission" | "policy" | "bodies" | "batches" | "release":
                self._restart_otherwise(step)
            case "assign" | "evict" | "come back":
                self._rebalance(step)
            case "clock" | "jump" | "sleep":
                self._set_clocks(step)
            case _:
                self._go_on(step)

    def _go_on(self, step: Step) -> None:
        match step:
            case ("together", tuple() as steps):
                for one in steps:
                    self.perform(one)
            case ("turn", int() as number, int() as times):
                self._turn(number, times)
            case ("pass", int() as elapsed_ms):
                self.time.pass_ms(elapsed_ms)
            case ("disk", int() as free_bytes):
                for world in self.worlds:
                    world.disk_free_bytes = free_bytes
            case _:
                raise AssertionError(step)

    def _set_clocks(self, step: Step) -> None:
        match step:
            case ("clock", int() as wrong_ms):
                for number in range(len(self.worlds)):
                    self._crash(number)
                self.time.step_ms(wrong_ms)
            case ("jump", int() as jump_ms):
                self.time.step_ms(jump_ms)
            case ("sleep", int() as asleep_ms):
                self.time.sleep_ms(asleep_ms)
                for world in self.worlds:
                    world.ask_broker_time()

    def finish(self) -> None:
        if self.plan.last:
            for number in range(len(self.worlds)):
                self.perform((self.plan.last, number))
            for number in range(len(self.worlds)):
                self._turn(number, 4)
        self._lift()
        for number in range(MOST_ROUNDS):
            self._settle()
            if len(self.worlds[0].ends()) >= len(self.kafka.read(INGRESS)):
                return
            self.time.pass_ms(self.plan.scale * (10 if number % 4 else 60))
        raise AssertionError("something never ends")

    def _lift(self) -> None:
        self.kafka.commit_faults.clear()
        self.kafka.meanwhile.clear()
        self.kafka.before_offsets.clear()
        self.kafka.max_bytes.clear()
        self.kafka.unauthorised.clear()
        self.kafka.time_limits.clear()
        self.kafka.leaderless.clear()
        self.kafka.takes_at_once = None
        self.kafka.topics = dict.fromkeys(TOPICS, 4)
        lifted: list[Step] = [
            ("skip",),
            ("disk", DISK_BYTES),
            *([("pause", ("*",), None)] if self.plan.scale == 1 else []),
            ("pause", (), None),
            ("pause ingest", False),
            ("limit", {}),
            ("worker rate", None),
            *(("end", partition, True) for partition in range(PARTITIONS)),
        ]
        for step in lifted:
            self.perform(step)
        for number, (per_target, overdue, per_second) in enumerate(self._release):
            if self.plan.scale == 1 and (per_target or per_second):
                self.perform(("release", number, {}, overdue, None))

    def close(self) -> None:
        for world in self.worlds:
            world.crash()

    def wrong(self) -> list[str]:
        ends = self.worlds[0].evidence(("checks",))
        for place, record in ends.ingress.items():
            at = record.offset
            if self.kafka.unreadable_base(record.partition, at, at + 1) is not None:
                ends.ingress[place] = replace(record, key=None, value=None, headers=[])
        gone = [
            f"{o}: its body is gone" for o, (_, said) in ends.said.items() if "body-gone" in said
        ]
        return [*violations(ends, self.plan.rules), *gone, *self._rewritten_too_often()]

    def _rewritten_too_often(self) -> Iterator[str]:
        """Yield records that were rewritten too often.

        A record may be rewritten once for each roll window, publish attempt and control by hand.
        """
        firsts = Counter(
            first
            for record in self.kafka.read(INGRESS)
            if (first := record.header("timer-first-origin")) and record.header("timer-hop-mac")
        )
        elapsed_ms = self.time.broker_now_ms - START_MS
        kinds = Counter(step[0] for step in each_of(self.plan.script))
        by_hand = sum(kinds[kind] for kind in BY_HAND)
        most = 30 + 4 * by_hand + 2 * kinds["refuse"] + elapsed_ms // (12 * self.plan.scale)
        for first, times in firsts.items():
            if times > most:
                yield f"{first!r} was rewritten {times} times, {most} would be many"

    def _turn(self, number: int, times: int) -> None:
        """Turn one worker. An error of its consumer ends the session too: an evicted member may
        read deleted records. If these were needed, the next session would refuse to start."""
        world = self.worlds[number]
        for _ in range(times):
            self._at_work.add(number)
            is_lost = False
            try:
                world.turn()
            except KafkaException:
                is_lost = True
            self._at_work.discard(number)
            if is_lost or world.pipeline.is_lost:
                self._crash(number)
        if not self.plan.is_retained:
            self.perform(("retention",))

    def _settle(self) -> None:
        for _ in range(1_000):
            before = self._progress()
            for number in range(len(self.worlds)):
                self._turn(number, 2)
            if before == self._progress():
                return
        raise AssertionError("the proxies do not come to rest")

    def _progress(self) -> object:
        logs = [len(log) for log in self.kafka.logs.values()]
        read = [shard.next_offset for world in self.worlds for shard in world.shards.values()]
        return logs, read, dict(self.kafka.committed)

    def _start(self, number: int) -> None:
        world, (per_target, overdue, per_second) = self.worlds[number], self._release[number]
        world.release = ReleaseControl(per_target, overdue)
        world.cap = WorkerRateLimit(per_second)
        self._tell(world)

    def _tell(self, world: World) -> None:
        wanted = self.operators
        world.release.pause(wanted.paused, wanted.resumed)
        world.release.limit(wanted.limits)
        world.cap.set(wanted.max_per_second)

    def _crash(self, number: int) -> None:
        self.worlds[number].crash()
        self._start(number)

    def _operate(self, step: Step) -> None:
        wanted = self.operators
        match step:
            case ("pause", tuple() as patterns, rate):
                over = wanted.paused - set(patterns)
                ended = dict.fromkeys(over, Resumed(self.time.wall_now_ms, rate))
                kept = {p: end for p, end in wanted.resumed.items() if p not in patterns}
                wanted.paused, wanted.resumed = frozenset(patterns), {**kept, **ended}
            case ("limit", dict() as limits):
                wanted.limits = limits
            case ("worker rate", per_second):
                wanted.max_per_second = per_second
            case ("pause ingest", bool() as is_paused):
                for world in self.worlds:
                    world.pause_ingest(is_paused)
        for world in self.worlds:
            self._tell(world)

    def _restart(self, step: Step) -> None:
        match step:
            case ("crash", int() as number):
                self._crash(number)
            case ("other disk", int() as number):
                self._crash(number)
                self.worlds[number].machine = 1 - self.worlds[number].machine
            case ("stop", int() as number):
                self._at_work.add(number)
                self.worlds[number].stop()
                self._at_work.discard(number)
                self._start(number)

    def _restart_otherwise(self, step: Step) -> None:
        what, number, *settings = step
        world = self.worlds[number]
        world.crash()
        match what, settings:
            case "admission", [dict() as changes]:
                world.admission = AdmissionSettings(**changes)
            case "policy", [dict() as changes]:
                world.policy = replace(world.policy, **changes)
            case "bodies", [str() as kept]:
                world.bodies = kept
            case "batches", [int() as batch_records]:
                world.batch_records = batch_records
            case "release", [dict() as per_target, tuple() as overdue, per_second]:
                self._release[number] = per_target, overdue, per_second
        self._start(number)

    def _rebalance(self, step: Step) -> None:
        match step:
            case ("come back", str() as callback, int() as partition):
                self.kafka.rebalances.append((callback, partition))
            case _ if self.plan.workers == 1:
                return
            case ("assign", "now", int() as partition):
                self.kafka.wanted[partition] = 1 - self.kafka.wanted[partition]
            case ("assign", "meanwhile", int() as partition):
                self.kafka.meanwhile.append(partial(self._taken_meanwhile, partition))
            case ("assign", "before offsets", int() as partition):
                self.kafka.before_offsets.append(partial(self._taken_meanwhile, partition))
            case ("evict", int() as number):
                self._evict(number)

    def _evict(self, number: int) -> None:
        """Take the member out of the group. The member does not know yet."""
        self.kafka.leave(number)
        for partition, member in self.kafka.wanted.items():
            if member == number:
                self.kafka.wanted[partition] = 1 - number

    def _taken_meanwhile(self, partition: int) -> None:
        owner = self.kafka.held.get(partition)
        if owner is not None and 1 - owner not in self._at_work:
            self._evict(owner)
            self._turn(1 - owner, 1)

    def _produce(self, step: Step) -> None:
        match step:
            case ("send", str() as when, *asked):
                partition = asked[2]
                self._write(when, partition, partial(self._send, *asked))
            case ("move", str() as when, str() as back, int() as partition, int() as at_ms):
                self._write(when, partition, self._moving(partition, back, at_ms))
            case ("purge", str() as when, *asked):
                self._write(when, asked[-1], partial(self.worlds[0].purge, *asked))

    def _change_broker(self, step: Step) -> None:
        match step:
            case ("fault", str() as when, str() as kind):
                self.kafka.commit_faults.append((when, FAULTS[kind]()))
            case ("end", int() as partition, bool() as is_committed):
                self.kafka.end_transaction(partition, is_committed=is_committed)
            case ("refuse", str() as what, str() as topic):
                self._refuse(what, topic)
            case ("throttle", records):
                self.kafka.takes_at_once = records
            case ("retention",):
                for partition, (offset, metadata) in self.kafka.committed.items():
                    floor = Position.from_metadata(offset, metadata).floor
                    self.kafka.log_starts[partition] = floor

    def _spoil(self, step: Step) -> None:
        match step:
            case ("unreadable", int() as partition, tuple() as batch):
                base = self.kafka.end(partition)
                for one in batch:
                    self.perform(one)
                batches = self.kafka.unreadable.setdefault(partition, [])
                batches.append((base, self.kafka.end(partition)))
            case ("skip",):
                skipped = self.operators.skipped("")
                for partition, batches in self.kafka.unreadable.items():
                    for batch in batches:
                        skipped.add(partition, range(*batch))

    def _refuse(self, what: str, topic: str) -> None:
        places = {(topic, number) for number in range(4)}
        match what:
            case "large":
                self.kafka.max_bytes[topic] = LARGE
            case "gone":
                self.kafka.topics.pop(topic, None)
            case "untimely":
                self.kafka.time_limits[topic] = 1 << 62, -1
            case "unauthorised" if topic != INGRESS:
                self.kafka.unauthorised.add(topic)
            case "leaderless" if topic != INGRESS:
                self.kafka.leaderless |= places
            case "nothing":
                self.kafka.max_bytes.pop(topic, None)
                self.kafka.time_limits.pop(topic, None)
                self.kafka.unauthorised.discard(topic)
                self.kafka.leaderless -= places
                if topic != INGRESS:
                    self.kafka.topics[topic] = 4

    def _write(self, when: str, partition: int, write: Callable[[], Any]) -> None:
        if when == "meanwhile":
            self.kafka.meanwhile.append(write)
        elif when == "in a transaction":
            self.kafka.open_transaction(partition, write)
        else:
            write()

    def _send(self, request: dict[str, str], target: str, partition: int, size_bytes: int) -> Any:
        end = self.kafka.end(partition)
        value = f"{partition}/{end}".encode().ljust(size_bytes, b".")
        key = KEYS[end % 3]
        if "timer-recall" in request:
            recalled = self._named(partition, request["timer-recall"])
            request, key = recall_of(partition, recalled, end)
        topic = {} if "timer-retry-group" in request else {"timer-topic": target}
        asked: dict[str, str | bytes] = {**topic, **request}
        return self.worlds[0].send(asked, key, value, partition)

    def _moving(self, partition: int, back: str, at_ms: int) -> Callable[[], Any]:
        offset = self._named(partition, back)
        for world in self.worlds:
            if partition in world.shards:
                return world.moving(partition, offset, at_ms)
        return lambda: None

    def _named(self, partition: int, back: str) -> int:
        """Return the offset that a recall or a move names.

        A number counts offsets back from the end. With a `w` it counts pending records back from
        the last one; odd numbers then name the first origin.
        """
        if back[0] != "w":
            return max(0, self.kafka.end(partition) - int(back))
        ended = {origin for origin, _, _ in self.worlds[0].ends()}
        log = self.kafka.logs[INGRESS, partition]
        waiting = [one for one in log if _may_wait(one, ended)]
        if not waiting:
            return 0
        number = int(back[1:])
        named = waiting[-1 - number % len(waiting)]
        first = named.header("timer-first-origin") if number % 2 else None
        return named.offset() if first is None else int(first.rpartition(b"/")[2])


def each_of(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield these steps. Steps that happen together are yielded one by one."""
    for step in steps:
        yield from each_of(step[1]) if step[0] == "together" else (step,)


def _may_wait(record: Record, ended: set[str]) -> bool:
    place = f"{INGRESS}/{record.partition()}/{record.offset()}"
    return not record.is_aborted and place not in ended and not is_control(cast(Any, record))


@contextmanager
def playing(plan: Plan) -> Iterator[Play]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for module, bounds in (*AT_ONCE, *(SMALL_BOUNDS if plan.has_small_bounds else ())):
            stack.enter_context(patch.multiple(module, **bounds))
        made = Play(plan, Path(folder))
        stack.callback(made.close)
        yield made


def play(plan: Plan) -> list[str]:
    with playing(plan) as made:
        try:
            for step in plan.script:
                made.perform(step)
            made.finish()
            return made.wrong()
        except Exception as error:  # noqa: BLE001 (whatever it is, the seed has found something)
            return [f"{type(error).__name__}: {error}"]
