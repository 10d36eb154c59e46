"""Command line of the benchmarks: `python -m tools.benchmarks --help`."""

import datetime as dt
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from proxy.embedded import EmbeddedBroker
from proxy.embedded.jars import kafka_version
from proxy.protocol.headers import ID
from tools.benchmarks import comparison, machine, table
from tools.benchmarks.accounting import only_child
from tools.benchmarks.comparison import Earlier
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.folders import own_folder
from tools.benchmarks.processes import leave_on_sigterm
from tools.benchmarks.report import Report
from tools.benchmarks.scale import FULL, QUICK, Scale
from tools.benchmarks.scenarios import (
    burst,
    idle,
    ingest,
    light,
    listing,
    overload,
    pending,
    purge,
    relay,
    scattered,
    through,
)
from tools.benchmarks.steady import warm_broker
from tools.benchmarks.trial import World

SCENARIOS: dict[str, Callable[[World], object]] = {
    "relay": relay.measure,
    "ingest": ingest.measure,
    "burst": burst.measure,
    "scattered": scattered.measure,
    "through": through.measure,
    "overload": overload.measure,
    "light": light.measure,
    "idle": idle.measure,
    "pending": pending.measure,
    "purge": purge.measure,
    "listing": listing.measure,
}

PLOTS = (".svg", ".png")
PROXY = f"{shlex.quote(sys.executable)} -m proxy"

progress = Console(stderr=True)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def measure(
    only: Annotated[
        str, typer.Option(help="Scenarios, comma-separated. The relay always runs.")
    ] = "",
    quick: Annotated[bool, typer.Option(help="Few records: only check that it runs.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the report here as JSON.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Compare with this report, not with the latest in docs/benchmarks."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the scenario overload into this .svg or .png file.")
    ] = None,
    held: Annotated[
        int | None,
        typer.Option(min=100, help="Highest rate of this machine, records/s. Default: measure it."),
    ] = None,
    pending_records: Annotated[int | None, typer.Option(help="Number of pending records.")] = None,
    value_bytes: Annotated[int, typer.Option(help="Size of a record's value.")] = 200,
    ids: Annotated[bool, typer.Option(help="Give every record a timer-id of its own.")] = False,
    proxy: Annotated[
        str, typer.Option(help="Command of the measured proxy. `run --config FILE` is added.")
    ] = PROXY,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for data of broker and proxies. It is not deleted.")
    ] = None,
) -> None:
    """Measure the proxy beside a plain relay, on an embedded broker.

    Each figure is shown beside its value in the latest report in docs/benchmarks from the same
    kind of machine. The exit code is 1 if a record came early, twice or not at all. It is 2 if a
    scenario could not be measured. Then the run ends at once. Slowness never changes the exit
    code."""
    usual = QUICK if quick else FULL
    scale = replace(
        usual,
        value_bytes=value_bytes,
        id_header=ID if ids else None,
        pending_records=pending_records or usual.pending_records,
        overload_held_per_s=held,
    )
    names = _chosen(only)
    if (plot or held) and "overload" not in names:
        raise typer.BadParameter(
            "--plot and --held need the scenario overload, which --only leaves out."
        )
    _refuse_what_would_fail_later(json, plot)
    described, options = machine.describe(kafka_version()), _options(quick, scale, usual)
    options += ["--proxy"] if proxy != PROXY else []
    earlier = _earlier(against, comparison.setting_of(asdict(described), options))
    results, has_failed = _run(names, folder, tuple(shlex.split(proxy)), scale)
    report = Report(_now(), quick, described, options, results)
    table.show(report, earlier, Console(width=max(progress.width, table.WIDTH)))
    _keep(report, json, plot)
    raise typer.Exit(1 if any(report.faults.values()) else 2 if has_failed else 0)


def _refuse_what_would_fail_later(json: Path | None, plot: Path | None) -> None:
    """Check the output paths before the run, because a run takes long."""
    for path in filter(None, (json, plot)):
        if not path.parent.is_dir():
            raise typer.BadParameter(f"{path.parent} is no folder: {path} cannot be written there.")
    if plot is None:
        return
    if plot.suffix not in PLOTS:
        raise typer.BadParameter(f"--plot {plot}: its name must end with {' or '.join(PLOTS)}.")
    if find_spec("matplotlib") is None:
        raise typer.BadParameter("--plot needs matplotlib: `make setup` installs it.")


def _options(quick: bool, scale: Scale, usual: Scale) -> list[str]:
    found = {
        "--quick": quick,
        "--ids": scale.id_header is not None,
        f"--value-bytes {scale.value_bytes}": scale.value_bytes != usual.value_bytes,
        f"--pending-records {scale.pending_records}": (
            scale.pending_records != usual.pending_records
        ),
        f"--held {scale.overload_held_per_s}": scale.overload_held_per_s is not None,
    }
    return [name for name, is_given in found.items() if is_given]


def _earlier(against: Path | None, setting: str) -> Earlier | None:
    try:
        return comparison.read(against) if against else comparison.last_committed(setting)
    except BenchmarkError as error:
        raise typer.BadParameter(str(error)) from error


def _keep(report: Report, json: Path | None, plot: Path | None) -> None:
    if json is not None:
        json.write_text(report.to_json() + "\n")
    if plot is not None:
        from tools.benchmarks.overload_plot import draw

        found = report.results.get("overload")
        if isinstance(found, overload.Overload):
            draw(found, plot)


def _run(
    names: list[str], folder: Path | None, proxy_command: tuple[str, ...], scale: Scale
) -> tuple[dict[str, object], bool]:
    """Return the results up to the first failure, and whether a scenario failed."""
    leave_on_sigterm()
    results: dict[str, object] = {}
    try:
        with made_world(folder, proxy_command, scale) as world:
            warm_broker(world)
            for name in names:
                results[name] = SCENARIOS[name](world)
    except (BenchmarkError, KafkaException, TimeoutError) as error:
        progress.print(str(error), style="red", markup=False)
        return results, True
    return results, False


def _chosen(only: str) -> list[str]:
    wanted = {"relay", *filter(None, only.split(","))} if only else set(SCENARIOS)
    if unknown := wanted - set(SCENARIOS):
        raise typer.BadParameter(f"no scenario {sorted(unknown)}; there are {list(SCENARIOS)}")
    return [name for name in SCENARIOS if name in wanted]


@contextmanager
def made_world(
    folder: Path | None, proxy_command: tuple[str, ...], scale: Scale
) -> Iterator[World]:
    with own_folder(folder, "benchmark") as root:
        progress.print(f"starting the broker; data in {root}")
        with EmbeddedBroker(data_dir=root / "broker", port=0) as broker:
            servers, broker_pid = broker.bootstrap_servers, only_child()
            yield World(servers, broker_pid, root, proxy_command, scale, progress.print)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    app()
