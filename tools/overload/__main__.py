"""Command line of the overload tool: `python -m tools.overload`; see `make overload`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy.embedded.jars import kafka_version
from tools.benchmarks import machine
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.folders import own_folder
from tools.benchmarks.processes import leave_on_sigterm
from tools.overload.performance import Scenario, perform
from tools.overload.plots import draw
from tools.overload.report import Content, content_of, markdown, read, write
from tools.overload.scenarios import faster, instant, large, partitions, reboot, targets
from tools.overload.sizes import scaled

SCENARIOS: dict[str, Scenario] = {
    "instant": instant,
    "faster": faster,
    "targets": targets,
    "large": large,
    "partitions": partitions,
    "reboot": reboot,
}

progress = Console(stderr=True)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    scenario: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(SCENARIOS)}. Repeatable.")
    ] = None,
    scale: Annotated[float, typer.Option(help="Factor for all sizes, such as 0.01.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(help="Add the figures to this JSON file. It keeps other scenarios."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw memory and lateness into this .svg or .png file.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the data of broker and proxy, kept after a fault."),
    ] = None,
) -> None:
    """Run loads beyond capacity, each with a broker and a proxy of its own.

    The exit code is 1 if a record was missing, duplicated or early, or if memory exceeded its
    bound. It is 2 if a scenario could not be run. Slowness never changes the exit code."""
    leave_on_sigterm()
    names = _chosen(scenario)
    found, done = read(output), list[Content]()
    try:
        with own_folder(folder, "overload") as home:
            for name in names:
                found[name] = _performed(name, scale, home)
                done.append(found[name])
                _keep(found, output, plot)
    except BenchmarkError as error:
        progress.print(str(error), style="red", markup=False)
        raise typer.Exit(2) from error
    print(markdown({name: found[name] for name in names}))
    raise typer.Exit(1 if any(any(one["faults"].values()) for one in done) else 0)


def _chosen(wanted: list[str] | None) -> list[str]:
    if unknown := set(wanted or ()) - set(SCENARIOS):
        raise typer.BadParameter(f"no scenario {sorted(unknown)}; there are {list(SCENARIOS)}")
    return [name for name in SCENARIOS if not wanted or name in wanted]


def _performed(name: str, scale: float, home: Path) -> Content:
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    command = f"python -m tools.overload --scenario {name}"
    command += f" --scale {scale:g}" if scale != 1 else ""
    found = perform(name, SCENARIOS[name], scaled(scale), home, _say)
    return content_of(date, command, scale, machine.describe(kafka_version()), found)


def _keep(found: dict[str, Content], output: Path | None, plot: Path | None) -> None:
    """Save after each scenario, because the next one may take an hour or fail."""
    if output is not None:
        write(found, output)
    if plot is not None:
        draw({name: found[name] for name in SCENARIOS if name in found}, plot)


def _say(what: str) -> None:
    now = dt.datetime.now(dt.UTC).strftime("%H:%M:%S")
    progress.print(f"{now} {what}", highlight=False, markup=False)


if __name__ == "__main__":
    app()
