import json
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from proxy.embedded import EmbeddedBroker
from tools.benchmarks.audit_scale.event_log import EventLog
from tools.benchmarks.audit_scale.mix import RECORDS
from tools.benchmarks.audit_scale.scale import Scale, audited, measure
from tools.benchmarks.audit_scale.shown import curve_of, table
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.folders import own_folder
from tools.benchmarks.processes import leave_on_sigterm

FULL: Final = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
SMALL: Final = 10_000
SMALL_ROUNDS: Final = 3
WIDTH: Final = 110
EVENTS: Final = "events"
EVENT_LOG: Final = """\
spark.eventLog.enabled true
spark.eventLog.dir file://{place}
spark.eventLog.compress false
spark.eventLog.rolling.enabled false
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    records: Annotated[
        list[int] | None, typer.Argument(help="Numbers of records, multiples of 100.")
    ] = None,
    small: Annotated[bool, typer.Option(help="Audit only 10,000 records, three times.")] = False,
    value_bytes: Annotated[int, typer.Option(help="Size of a record's value.")] = 200,
    driver_memory: Annotated[str, typer.Option(help="Memory of each Spark driver.")] = "4g",
    profile: Annotated[bool, typer.Option(help="Print the time of each query.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Keep the data in this folder.")] = None,
) -> None:
    """Measure an audit of each number of records, beside a bare Spark read of the same topics, on
    an embedded broker."""
    counts = tuple(records or ((SMALL,) if small else FULL))
    if any(count % RECORDS or count <= 0 for count in counts):
        raise typer.BadParameter(f"a number of records must be a multiple of {RECORDS}")
    leave_on_sigterm()
    try:
        with own_folder(folder, "audit") as root, _broker(root) as bootstrap:
            scale = Scale(bootstrap, root, driver_memory, value_bytes, _settings(root, profile))
            _small(scale, counts) if small else _whole(scale, counts)
    except BenchmarkError as error:
        Console(stderr=True).print(str(error), style="red", markup=False)
        raise typer.Exit(2) from error


def _small(scale: Scale, counts: Sequence[int]) -> None:
    for records in counts:
        seconds = [one.seconds for one in audited(scale, records, SMALL_ROUNDS)]
        told = {"records": records, "median_s": round(statistics.median(seconds), 1)}
        print(json.dumps({**told, "rounds_s": [round(one, 1) for one in seconds]}), flush=True)
        _show_profile(scale, audits=1)


def _whole(scale: Scale, counts: Sequence[int]) -> None:
    found = []
    for records in counts:
        found.append(measure(scale, records))
        print(json.dumps(found[-1].to_json()), flush=True)
        _show_profile(scale, audits=2)
    if curve := curve_of(found):
        print(json.dumps(curve.to_json()), flush=True)
    Console(width=WIDTH).print(table(found))


def _show_profile(scale: Scale, audits: int) -> None:
    if scale.environment:
        for log in EventLog.newest(scale.folder / EVENTS, audits):
            Console(width=WIDTH).print(log.table())


def _settings(folder: Path, is_profiled: bool) -> dict[str, str] | None:
    """Return an environment in which Spark writes an event log, or None without `--profile`."""
    if not is_profiled:
        return None
    (folder / EVENTS).mkdir(exist_ok=True)
    settings = EVENT_LOG.format(place=(folder / EVENTS).absolute())
    (folder / "spark-defaults.conf").write_text(settings, "utf-8")
    return {**os.environ, "SPARK_CONF_DIR": str(folder)}


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    with EmbeddedBroker(data_dir=folder / "broker", port=0) as broker:
        yield broker.bootstrap_servers


if __name__ == "__main__":
    app()
