"""Command line of the benchmarks: `python -m tests.benchmarks --help`."""

import datetime as dt
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy.embedded import EmbeddedBroker
from proxy.embedded.java.locked_jars import kafka_version
from proxy.records.headers import ID
from tests.benchmarks import machine, table
from tests.benchmarks.accounting import only_child
from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.folders import own_folder
from tests.benchmarks.processes import leave_on_sigterm
from tests.benchmarks.report import Report
from tests.benchmarks.scale import FULL, QUICK, Scale
from tests.benchmarks.scenarios import (
    burst,
    ingest,
    light,
    listing,
    pending,
    purge,
    relay,
    scattered,
    through,
)
from tests.benchmarks.steady import warm_broker
from tests.benchmarks.trial import World

SCENARIOS: dict[str, Callable[[World], object]] = {
    "relay": relay.measure,
    "ingest": ingest.measure,
    "burst": burst.measure,
    "scattered": scattered.measure,
    "through": through.measure,
    "light": light.measure,
    "pending": pending.measure,
    "purge": purge.measure,
    "listing": listing.measure,
}

progress = Console(stderr=True)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def measure(
    only: Annotated[str, typer.Option(help="Scenarios, with commas; the relay always runs.")] = "",
    quick: Annotated[bool, typer.Option(help="Small counts: shows that it works.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the report here as JSON.")] = None,
    pending_records: Annotated[int | None, typer.Option(help="Records that wait.")] = None,
    value_bytes: Annotated[int, typer.Option(help="Size of a record's value.")] = 200,
    ids: Annotated[bool, typer.Option(help="Give every record a timer-id of its own.")] = False,
    proxy: Annotated[
        str, typer.Option(help="The command under measurement; `run --config FILE` is added.")
    ] = f"{shlex.quote(sys.executable)} -m proxy",
    folder: Annotated[
        Path | None, typer.Option(help="Where broker and proxies keep data; kept afterwards.")
    ] = None,
) -> None:
    """Measures the proxy on an embedded broker of its own, beside a plain relay.

    Exit code 1 when a record came early, twice or not at all; never because of a time.
    """
    scale = QUICK if quick else FULL
    scale = replace(
        scale,
        value_bytes=value_bytes,
        id_header=ID if ids else None,
        pending_records=pending_records or scale.pending_records,
    )
    names = _chosen(only)
    results = _run(names, folder, tuple(shlex.split(proxy)), scale)
    report = Report(_now(), quick, machine.describe(kafka_version()), results)
    table.show(report, Console(width=max(progress.width, table.WIDTH)))
    if json is not None:
        json.write_text(report.to_json())
    raise typer.Exit(1 if any(report.faults.values()) else 0)


def _run(
    names: list[str], folder: Path | None, proxy_command: tuple[str, ...], scale: Scale
) -> dict[str, object]:
    leave_on_sigterm()
    try:
        with made_world(folder, proxy_command, scale) as world:
            warm_broker(world)
            return {name: SCENARIOS[name](world) for name in names}
    except BenchmarkError as error:
        progress.print(str(error), style="red", markup=False)
        raise typer.Exit(2) from error


def _chosen(only: str) -> list[str]:
    wanted = {"relay", *filter(None, only.split(","))} if only else set(SCENARIOS)
    if unknown := wanted - set(SCENARIOS):
        raise typer.BadParameter(f"no scenario {sorted(unknown)}; there are {list(SCENARIOS)}")
    return [name for name in SCENARIOS if name in wanted]


@contextmanager
def made_world(
    folder: Path | None, proxy_command: tuple[str, ...], scale: Scale
) -> Iterator[World]:
    """A broker of its own, and what is measured on it."""
    with own_folder(folder, "benchmark") as root:
        progress.print(f"starting the broker; data in {root}")
        with EmbeddedBroker(data_dir=root / "broker", port=0) as broker:
            servers, broker_pid = broker.bootstrap_servers, only_child()
            yield World(servers, broker_pid, root, proxy_command, scale, progress.print)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    app()
