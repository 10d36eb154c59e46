"""`python -m tests.soak --minutes 60 --seed 1`: a soak, judged twice; see `make soak`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from spark_jobs.runtime.session import spark_session
from tests.soak.scene import Scene
from tests.soak.soak import Soak, soak
from tests.support.oracle.auditor import Auditor
from tests.support.oracle.ends import Ends

MIB = 1 << 20
FEW_PARTITIONS = {"spark.sql.shuffle.partitions": "4"}
app = typer.Typer(add_completion=False)
console = Console()


@app.command()
def run(
    minutes: Annotated[float, typer.Option(help="How long faults are done.")] = 3,
    seed: Annotated[int, typer.Option(help="Decides faults and records; 0: any.")] = 0,
    per_second: Annotated[int, typer.Option(help="Records written a second.")] = 200,
    folder: Annotated[
        Path | None, typer.Option(help="Keeps logs and data there; else a temporary one.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Writes the figures there as JSON.")] = None,
) -> None:
    """Proxies on three brokers, under load, while faults are done to all of them."""
    seed = seed or time.time_ns() % 1_000_000
    console.print(f"seed {seed}: {minutes:g} minutes, {per_second} records a second")
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        home = folder or Path(temporary)
        try:
            found = soak(
                home, seed=seed, minutes=minutes, per_second=per_second, audit=_auditing(home)
            )
        except AssertionError as failed:
            console.print(str(failed), style="red", highlight=False)
            console.print(f"not held; once more: make soak MINUTES={minutes:g} SEED={seed}")
            sys.exit(1)
    figures = figures_of(found)
    console.print(_table(figures))
    if output is not None:
        output.write_text(json.dumps(figures, indent=2), "utf-8")


def figures_of(found: Soak) -> dict[str, Any]:
    """What the table and the JSON show."""
    late_ms = np.array(found.ends.lateness_ms or [0])
    p50, p99 = (int(value) for value in np.percentile(late_ms, [50, 99]))
    peaks: dict[str, int] = {}
    for sample in found.samples:
        peaks[sample.proxy] = max(peaks.get(sample.proxy, 0), sample.resident_bytes)
    return {
        "seed": found.seed,
        "minutes": found.minutes,
        "records": len(found.ends.ingress),
        "sent": found.sent,
        "ends": dict(found.ends.counts),
        "faults": len(found.done),
        "faults_by_kind": dict(sorted(found.faults.items())),
        "lateness_ms": {"p50": p50, "p99": p99, "max": int(late_ms.max())},
        "peak_resident_mib": {name: size // MIB for name, size in peaks.items()},
        "resident": [(round(s.at_s), s.proxy, s.resident_bytes) for s in found.samples],
    }


def _table(figures: dict[str, Any]) -> Table:
    table = Table("figure", "value", title="held: nothing missing, twice, early or altered")
    for name in ("seed", "minutes", "records", "faults", "lateness_ms", "peak_resident_mib"):
        table.add_row(name, str(figures[name]))
    for section in ("sent", "ends", "faults_by_kind"):
        for name, count in figures[section].items():
            table.add_row(f"{section}: {name}", str(count))
    return table


def _auditing(home: Path) -> Callable[[Scene, Ends], None]:
    def audit(made: Scene, ends: Ends) -> None:
        spark = spark_session("soak", "local[2]", "2g", FEW_PARTITIONS)
        try:
            Auditor(spark, home).confirm(made.installation, ends)
        finally:
            spark.stop()

    return audit


if __name__ == "__main__":
    app()
