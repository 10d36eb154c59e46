"""Command line of the comparison of stores: `python -m tools.benchmarks.stores --help`."""

import datetime as dt
import json as json_text
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy.embedded.jars import kafka_version
from proxy.errors import lacking
from tools.benchmarks import machine
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.folders import own_folder
from tools.benchmarks.processes import leave_on_sigterm
from tools.benchmarks.stores import tables
from tools.benchmarks.stores.kinds import KINDS, why_missing
from tools.benchmarks.stores.measurement import Setup, measure
from tools.benchmarks.stores.results import Place, Results, found_in
from tools.benchmarks.stores.scenarios import BODIES_BYTES, SCENARIOS, WAITING_10M
from tools.benchmarks.turns import Figures, in_turns

USUAL = [name for name in SCENARIOS if name != WAITING_10M.name]

progress = Console(stderr=True)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def compare(
    only: Annotated[str, typer.Option(help="Scenarios, comma-separated.")] = ",".join(USUAL),
    kinds: Annotated[str, typer.Option(help="Kinds of store, comma-separated.")] = ",".join(KINDS),
    bodies: Annotated[str, typer.Option(help="Body sizes in bytes, comma-separated.")] = ",".join(
        map(str, BODIES_BYTES)
    ),
    large: Annotated[bool, typer.Option(help="Add a scenario with 10 million records.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds. Each measures a kind twice.")] = 1,
    scale: Annotated[
        float, typer.Option(min=1e-6, help="Factor for all record counts. 0.01 suits a check.")
    ] = 1,
    targets: Annotated[int, typer.Option(min=1, help="Number of target topics.")] = 4,
    results: Annotated[
        Path,
        typer.Option(help="Folder of JSON results. Results that exist are not measured again."),
    ] = Path("stores-results"),
    markdown: Annotated[
        bool, typer.Option(help="Measure nothing, only print the table as Markdown.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write all results here as JSON.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the measured stores, on a real disk.")
    ] = None,
) -> None:
    """Fill a shard of each kind of store, open it again and drain it, without a broker.

    A missing kind is skipped with a message. The exit code is 2 if a kind could not be measured."""
    names = _chosen("scenario", only, SCENARIOS) + [WAITING_10M.name] * large
    wanted = _chosen("kind", kinds, KINDS)
    sizes = _chosen("size of bodies", bodies, {str(size): size for size in BODIES_BYTES})
    if not markdown:
        leave_on_sigterm()
        results.mkdir(parents=True, exist_ok=True)
        kept = Results(results, Setup(scale, targets), _circumstances())
        places = _places(dict.fromkeys(names), sizes)
        _measure_all(places, list(_present(wanted)), rounds, kept, folder)
    found = found_in(results)
    if json is not None:
        json.write_text(json_text.dumps(found, indent=2))
    if markdown:
        print(tables.markdown(found))
    else:
        Console(width=max(progress.width, tables.WIDTH)).print(tables.shown(found))


def _chosen(what: str, asked: str, known: Mapping[str, object]) -> list[str]:
    wanted = set(filter(None, asked.split(",")))
    if unknown := wanted - set(known):
        raise typer.BadParameter(f"no {what} {sorted(unknown)}; there are {list(known)}")
    return [name for name in known if name in wanted]


def _places(names: Iterable[str], sizes: list[str]) -> Iterator[Place]:
    for name in names:
        for body_bytes in SCENARIOS[name].bodies_bytes:
            if str(body_bytes) in sizes:
                yield Place(name, body_bytes)


def _present(names: list[str]) -> Iterator[str]:
    for name in names:
        if why := why_missing(name):
            progress.print(why, markup=False)
        else:
            yield name


def _measure_all(
    places: Iterable[Place], kinds: list[str], rounds: int, results: Results, folder: Path | None
) -> None:
    try:
        with own_folder(folder, "stores") as root:
            for place in places:
                takes = [kind for kind in kinds if KINDS[kind].takes(place.body_bytes)]
                in_turns(takes, rounds, place.name, partial(_measure, place, results, root))
    except BenchmarkError as error:
        progress.print(str(error), style="red", markup=False)
        raise typer.Exit(2) from error


def _measure(place: Place, results: Results, root: Path, kind: str, trial_name: str) -> Figures:
    scenario, setup = SCENARIOS[place.scenario], results.setup
    return results.recall(
        trial_name, lambda: measure(scenario, KINDS[kind], place.body_bytes, setup, root)
    )


def _circumstances() -> dict[str, object]:
    brought = [] if lacking("rocksdb") else ["rocksdict"]
    versions = {name: version(name) for name in ("numpy", *brought)}
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="minutes"),
        "machine": {**asdict(machine.describe(kafka_version())), "versions": versions},
    }


if __name__ == "__main__":
    app()
