"""Random runs in pairs, without a fault and with one planted fault. The audit must report exactly
the planted fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import SparkSession

from spark_jobs.runtime.frames import location, materialising
from tools.campaign.contents import MOVED, PENDING, Contents, Ended
from tools.campaign.judging import Prepared, Said, Verdicts, judged
from tools.campaign.operators.operator import UNSETTLED, Operator, Planted, Planting
from tools.campaign.played_run import played
from tools.campaign.rows_of_topics import laid_out
from tools.campaign.scene import OWN, OWN_STRIDE, PARTITIONS
from tools.campaign.sight import SIGHTS

BATCH, FOLLOW = "batch", "follow"
NONE = Said("none", is_violation=False, detail="")


class Wrong(NamedTuple):
    run: int
    mode: str
    operator: str | None
    origin: str
    said: Said
    expected: str


@dataclass(frozen=True, slots=True)
class Faulty:
    number: int
    contents: Contents
    operator: Operator
    planted: Planted


@dataclass(slots=True)
class Figures:
    """Counts of the campaign. `planted` and `caught` count faults by operator and mode. `clean`
    counts runs without a fault by mode. `so_far` counts planted faults by operator."""

    planted: Counter[tuple[str, str]] = field(default_factory=Counter)
    caught: Counter[tuple[str, str]] = field(default_factory=Counter)
    clean: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)
    so_far: Counter[str] = field(default_factory=Counter)


class Chunk:
    def __init__(self, clean: Sequence[Contents], faulty: Sequence[Faulty]) -> None:
        self.clean, self.faulty = list(clean), list(faulty)

    @property
    def runs(self) -> list[Contents]:
        return [*self.clean, *(one.contents for one in self.faulty)]


def drawn_chunk(
    seed: int,
    numbers: Iterable[int],
    operators: Mapping[str, Operator],
    so_far: Counter[str],
) -> Chunk:
    """Play each history (random requests and events) twice: as a clean run, and as a twin with one
    planted fault. Faults that were planted least often come first. Without operators, there are
    only clean runs. A twin is left out if its records end otherwise than in the clean run even
    without the fault. This can happen, because a twin's partitions have other numbers.
    A partition's number decides in which turns the proxy skips its shard."""
    clean, faulty = [], []
    for number in numbers:
        clean.append(played(seed, number, 2 * number))
        if operators:
            twin = played(seed, number, 2 * number + 1)
            is_alike = ended_as(twin) == ended_as(clean[-1])
            found = _planted(seed, number, twin, operators, so_far) if is_alike else None
            faulty += [found] if found else []
    return Chunk(clean, faulty)


def _planted(
    seed: int,
    number: int,
    contents: Contents,
    operators: Mapping[str, Operator],
    so_far: Counter[str],
) -> Faulty | None:
    chance = Random(f"{seed}/{number}/fault")
    names = list(operators)
    chance.shuffle(names)
    for name in sorted(names, key=lambda one: so_far[one]):
        operator, planting = operators[name], Planting(contents, chance)
        if places := operator.places(planting):
            so_far[name] += 1
            return Faulty(
                number, contents, operator, operator.plant(planting, chance.choice(places))
            )
    return None


def judge(spark: SparkSession, chunk: Chunk, modes: Iterable[str], figures: Figures) -> None:
    with TemporaryDirectory(prefix="audit-campaign-") as place:
        folder = Path(place)
        laid = laid_out(spark, chunk.runs, folder / "topics")
        for mode in modes:
            if mode in SIGHTS:
                _judge_seen(spark, chunk, mode, folder / mode, figures)
                continue
            check(chunk, mode, judged(laid, mode, folder / mode), figures)


def _judge_seen(
    spark: SparkSession, chunk: Chunk, sight: str, folder: Path, figures: Figures
) -> None:
    """Audit the clean runs with a limited view of their topics. No record may be a violation."""
    with materialising(spark, location(folder)) as keep:
        found = Prepared(spark, chunk.clean, sight, folder / "topics", keep).judged(keep)
    check(Chunk(chunk.clean, ()), sight, found, figures)


def check(chunk: Chunk, mode: str, found: Verdicts, figures: Figures) -> None:
    """Compare the audit's verdicts with the expected verdicts. Count right verdicts and keep wrong
    verdicts. If the audit sees all records, each record of a clean run must get the verdict that
    fits its end."""
    by_run = _by_run(found)
    for contents in chunk.clean:
        said = by_run.get(contents.run, {})
        figures.clean[mode] += 1
        figures.records[mode] += len(said)
        expected = ended_as(contents)
        if mode == FOLLOW:
            expected = _without_unread(expected, contents)
        for origin in {**expected, **said}:
            one, wanted = said.get(origin, NONE), expected.get(origin, NONE.verdict)
            is_wrong = mode not in SIGHTS and one.verdict != wanted
            if one.is_violation or is_wrong:
                figures.wrong.append(Wrong(contents.run // 2, mode, None, origin, one, wanted))
    for faulty in chunk.faulty:
        run = faulty.contents.run
        _check_faulty(faulty, mode, by_run.get(run - 1, {}), by_run.get(run, {}), figures)


def _without_unread(expected: Mapping[str, str], contents: Contents) -> dict[str, str]:
    """Leave out records that the proxy has not read, because `follow` gives them no verdict."""
    unread = {relative(one.origin) for one in contents.records() if not one.is_read}
    return {origin: verdict for origin, verdict in expected.items() if origin not in unread}


def ended_as(contents: Contents) -> dict[str, str]:
    return {relative(one.origin): _called(one) for one in contents.records()}


def _called(one: Ended) -> str:
    """Return the verdict that fits the record's end. It is pending if the proxy has not read the
    record."""
    if not one.is_read:
        return PENDING
    end = one.outcome.said()["outcome"] if one.end == MOVED else one.end
    return str(end).replace("-", "_")


def _check_faulty(
    faulty: Faulty, mode: str, before: Verdicts, after: Verdicts, figures: Figures
) -> None:
    key = (faulty.operator.name, mode)
    figures.planted[key] += 1
    wrong = list(_wrong(faulty, mode, before, after))
    figures.wrong += wrong
    if not wrong and mode not in faulty.operator.unseen_in:
        figures.caught[key] += 1
        figures.verdicts.update(
            {after[origin].verdict for origin in _relative(faulty.planted.expected)}
        )


def _wrong(faulty: Faulty, mode: str, before: Verdicts, after: Verdicts) -> Iterable[Wrong]:
    """Yield the wrong verdicts of the audit. If the mode cannot see the fault, the audit need not
    report it. But then the audit must not report another violation."""
    expected = _allowed(faulty.planted.expected, mode)
    sides = _allowed(faulty.planted.sides, mode)
    is_unseen = mode in faulty.operator.unseen_in
    named = any(after.get(origin, NONE).is_violation for origin in {**expected, **sides})
    for origin in {**before, **after, **expected}:
        was, now = before.get(origin, NONE), after.get(origin, NONE)
        may_be = expected.get(origin, frozenset()) | sides.get(origin, frozenset())
        if now.verdict in may_be or (may_be and _is_second_end(now, mode)):
            continue
        is_changed = now.verdict != was.verdict
        if is_unseen and not now.is_violation:
            continue
        if is_changed or (origin in expected and not (named and mode != BATCH)):
            wanted = " or ".join(sorted(may_be)) or was.verdict
            yield _said(faulty, mode, origin, now, wanted)


def _allowed(by_origin: Mapping[str, frozenset[str]], mode: str) -> dict[str, frozenset[str]]:
    """Return the verdicts that a mode may give, by origin. `follow` judges only records that must
    have ended, so it may call records marked UNSETTLED pending."""
    pending = {PENDING} if mode == FOLLOW else set()
    return {
        origin: verdicts - {UNSETTLED} | (pending if UNSETTLED in verdicts else set())
        for origin, verdicts in _relative(by_origin).items()
    }


def _is_second_end(said: Said, mode: str) -> bool:
    """Return whether the audit says that an earlier audit saw the record's end. Then this audit
    knows nothing else about that end."""
    return mode != BATCH and "an earlier audit saw its end" in said.detail


def _said(faulty: Faulty, mode: str, origin: str, said: Said, expected: str) -> Wrong:
    return Wrong(faulty.number, mode, faulty.operator.name, origin, said, expected)


def _by_run(found: Verdicts) -> dict[int, Verdicts]:
    by_run: dict[int, Verdicts] = {}
    for origin, said in found.items():
        by_run.setdefault(run_of(origin), {})[relative(origin)] = said
    return by_run


def run_of(origin: str) -> int:
    topic, partition, offset = origin.rsplit("/", 2)
    if not topic.startswith("@"):
        return int(partition) // PARTITIONS
    if topic[1:] in {OWN.outcomes, OWN.dead_letters}:
        return int(offset) // OWN_STRIDE
    return int(topic.rpartition("-")[2].rpartition(".g")[2])


def relative(origin: str) -> str:
    topic, partition, offset = origin.rsplit("/", 2)
    return origin if topic.startswith("@") else f"{topic}/{int(partition) % PARTITIONS}/{offset}"


def _relative(by_origin: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    return {relative(origin): verdicts for origin, verdicts in by_origin.items()}
