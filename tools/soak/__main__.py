"""Command line of the soak test: `python -m tools.soak --minutes 60 --seed 1`; see `make soak`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from spark_jobs.runtime.session import spark_session
from tests.support.oracle.auditor import Auditor
from tests.support.oracle.partitioned import Tally
from tools.soak.faults import Choice, Named, named, shrunk
from tools.soak.figures import figures_of
from tools.soak.plots import draw
from tools.soak.scene import Scene
from tools.soak.soak import NotHeld, Soak, soak

IN_TABLE = (
    *("seed", "minutes", "records_sent", "records_judged", "faults", "lateness_ms"),
    *("peak_resident_mib", "judged_s", "judge_peak_mib"),
)
SECTIONS = ("first_delivery_s", "after_a_lost_disk", "sent", "ends", "faults_by_kind")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
console = Console()


@app.command()
def run(
    minutes: Annotated[float, typer.Option(help="Minutes with faults.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of faults and records. 0: draw one.")] = 0,
    per_second: Annotated[int, typer.Option(help="Number of records written a second.")] = 200,
    folder: Annotated[
        Path | None, typer.Option(help="Keep logs and data here. Default: a temporary folder.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the figures into this JSON file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw lateness and memory into this .png or .svg file.")
    ] = None,
    proxies: Annotated[
        str | None, typer.Option(help="Numbers of the only faults of proxies, such as 3-17,20.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(help="Numbers of the only faults of brokers and network.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A kind of fault to leave out. Repeatable.")
    ] = None,
    shrink: Annotated[
        bool, typer.Option(help="After a failure, halve the faults as long as one half fails.")
    ] = False,
) -> None:
    """Run proxies on three brokers under load, with faults, and judge the result twice."""
    seed = seed or time.time_ns() % 1_000_000
    console.print(f"seed {seed}: {minutes:g} minutes, {per_second} records a second")
    again = partial(_in_folder, seed=seed, minutes=minutes, per_second=per_second)
    left_out = frozenset(without or ())
    try:
        found = again(folder, choice=Choice(_named(proxies, brokers), left_out))
    except NotHeld as failed:
        _say(failed, minutes, seed, left_out)
        if shrink:
            _shrink(failed, left_out, partial(again, None))
        sys.exit(1)
    figures = figures_of(found)
    console.print(_table(figures))
    if output is not None:
        output.write_text(json.dumps(figures, indent=1), "utf-8")
    if plot is not None:
        draw(figures, plot)


def _named(proxies: str | None, brokers: str | None) -> frozenset[Named] | None:
    if proxies is None and brokers is None:
        return None
    return frozenset(named("proxies", proxies or "") | named("brokers", brokers or ""))


def _in_folder(folder: Path | None, **options: Any) -> Soak:
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        home = folder or Path(temporary)
        return soak(home, audit=_auditing(home), **options)


def _say(failed: NotHeld, minutes: float, seed: int, without: Iterable[str]) -> None:
    console.print(str(failed), style="red", highlight=False)
    left_out = [f'--without "{kind}"' for kind in without]
    lanes = {lane: _numbers(failed, lane) for lane in ("proxies", "brokers")}
    only = [f"--{lane} {','.join(map(str, numbers))}" for lane, numbers in lanes.items() if numbers]
    args = " ".join([*only, *left_out])
    console.print(
        f"failed; to run it again: make soak MINUTES={minutes:g} SEED={seed} ARGS='{args}'"
    )


def _numbers(failed: NotHeld, lane: str) -> list[int]:
    return [one.number for one in failed.done if one.lane == lane]


def _shrink(failed: NotHeld, without: frozenset[str], again: Callable[..., Soak]) -> None:
    last = [failed]

    def fails(faults: list[Named]) -> bool:
        try:
            again(choice=Choice(frozenset(faults), without))
        except NotHeld as once_more:
            last.append(once_more)
            return True
        return False

    faults = shrunk([(one.lane, one.number) for one in failed.done], fails)
    console.print(f"it still fails with {len(faults)} faults: {faults}\n{last[-1]}")


def _table(figures: dict[str, Any]) -> Table:
    table = Table("figure", "value", title="held: nothing missing, twice, early or altered")
    for name in IN_TABLE:
        table.add_row(name, str(figures[name]))
    for section in SECTIONS:
        for name, value in figures[section].items():
            table.add_row(f"{section}: {name}", str(value))
    return table


def _auditing(home: Path) -> Callable[[Scene, Tally], None]:
    def audit(made: Scene, tally: Tally) -> None:
        spark = spark_session("soak", "local[2]")
        try:
            Auditor(spark, home).confirm(made.installation, tally)
        finally:
            spark.stop()

    return audit


if __name__ == "__main__":
    app()
