"""The run of one scenario, from the check of the disk space to the figures."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from proxy.config.settings import Settings
from tests.support.oracle.committed_reader import CommittedReader
from tools.benchmarks.trial import warm_up
from tools.overload.ledger import Account
from tools.overload.scene import Scene, refuse_without_room
from tools.overload.sizes import Sizes
from tools.overload.stage import Figures, Stage, reader_of, staged
from tools.overload.taken_over import taken_over_since
from tools.overload.timeline import Timeline

MIB: Final = 1 << 20
SHOWN: Final = 10


class Scenario(Protocol):
    def scene(self, sizes: Sizes) -> Scene:
        """Return what the scenario needs: topics, broker and disk space."""

    def act(self, stage: Stage) -> Figures:
        """Run the scenario. The result's key `faults` has further faults, which the ledger does not
        see."""

    def figures(self, acted: Figures, account: Account) -> Figures:
        """Return the figures to report."""


@dataclass(frozen=True, slots=True)
class Performed:
    """Result of a scenario. All `faults` must be 0. Moments are seconds since the start of the
    scenario. `samples` has the fields of `timeline.Sample`. Each item of `lateness` is a second and
    the fields of `lateness_by_second.Late`. `resident` is the worker's memory in MiB: when it was
    ready, and the peaks of anonymous and file pages. The key `bound` in `resident` is the setting
    for the memory of records, None if it is not set."""

    records: dict[str, int]
    figures: Figures
    faults: dict[str, int]
    resident: dict[str, int | None]
    marks: list[tuple[float, str]]
    samples: list[tuple[float, ...]]
    lateness: list[tuple[float, ...]]


def perform(
    name: str, scenario: Scenario, sizes: Sizes, home: Path, say: Callable[[str], None]
) -> Performed:
    """Run one scenario in its own folder below `home`. Delete this folder after a success. Raise
    BenchmarkError if the scenario cannot be run."""
    scene = scenario.scene(sizes)
    refuse_without_room(scene, home, name)
    folder = home / name
    with staged(name, scene, sizes, folder, say) as stage:
        first_ready_s = stage.start()
        with reader_of(stage) as reader:
            warm_up(stage.made)
            acted = scenario.act(stage)
            stage.progress.end()
            account = reader.result(120)
        acted["first ready, s"] = first_ready_s
        acted["sessions lost in all"] = taken_over_since(stage.made.proxy.log).sessions_lost
        faults = _faults(stage, account, acted.pop("faults", {}))
    if any(faults.values()):
        say(f"{name}: {faults}, first missing {account.missing}; left in {folder}")
    else:
        shutil.rmtree(folder)
    return _performed(scene, stage.timeline, account, scenario.figures(acted, account), faults)


def _faults(stage: Stage, account: Account, own: dict[str, int]) -> dict[str, int]:
    verdict, made = asdict(account.verdict), stage.made
    with CommittedReader(made.world.bootstrap_servers) as reader:
        dead = reader.count([f"{made.name}.dead-letters"])
    found = {what: verdict[what] for what in ("missing", "duplicate", "early")}
    beyond = _beyond_bound(_resident(stage.timeline))
    return {**found, "dead letters": dead, "MiB beyond the bound": beyond, **own}


def _performed(
    scene: Scene, timeline: Timeline, account: Account, figures: Figures, faults: dict[str, int]
) -> Performed:
    return Performed(
        records={name: came.written for name, came in account.came.items()},
        figures=figures,
        faults=faults,
        resident=_resident(timeline),
        marks=[(mark.at_s, mark.what) for mark in timeline.marks],
        samples=[tuple(sample) for sample in timeline.samples],
        lateness=[(timeline.second_of(second * 1000), *late) for second, late in account.by_second],
    )


def _resident(timeline: Timeline) -> dict[str, Any]:
    samples = timeline.samples
    ready_s = next((at_s for at_s, what in timeline.marks if what == "ready"), 0.0)
    idle = next((sample for sample in samples if sample.at_s >= ready_s), None)
    return {
        "when ready": idle and idle.anonymous_bytes // MIB,
        "peak anonymous": max((s.anonymous_bytes for s in samples), default=0) // MIB,
        "peak of files": max((s.file_bytes for s in samples), default=0) // MIB,
        "bound": memory_bound_mib(),
    }


def _beyond_bound(resident: dict[str, Any]) -> int:
    """Return the MiB beyond the bound, without the memory that the worker used when it was
    ready."""
    if resident["bound"] is None or resident["when ready"] is None:
        return 0
    return max(0, int(resident["peak anonymous"] - resident["when ready"] - resident["bound"]))


def memory_bound_mib() -> int | None:
    """Return the setting `memory.per_worker` in MiB, None if it is not set."""
    memory = getattr(Settings(), "memory", None)
    return None if memory is None else int(memory.per_worker_bytes) // MIB
