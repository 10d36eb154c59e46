"""A report for people: the figures beside their goals, and the streams in full."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tests.benchmarks.figures import Figure
from tests.benchmarks.report import Report
from tests.benchmarks.scenarios.burst import Bursts
from tests.benchmarks.scenarios.ingest import Ingest
from tests.benchmarks.scenarios.listing import Listing
from tests.benchmarks.scenarios.relay import Relay
from tests.benchmarks.steady import Ladder, Streamed
from tests.benchmarks.verdict import Lateness

WIDTH = 110

_MARKS = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}
_PROCESSES = ("broker", "proxy", "generator", "reader")


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    per_s: float
    lateness: Lateness | None
    cpu_us: dict[str, float]
    other_cores: float


def show(report: Report, console: Console) -> None:
    """Prints everything."""
    machine = report.machine
    console.print(
        f"{report.date}  {machine.cpu}, {machine.cores} cores, {machine.memory_gb} GB; "
        f"Kafka {machine.kafka}, librdkafka {machine.librdkafka}, Python {machine.python}"
    )
    console.print(_figures_table(report.figures))
    console.print(_detail_table(report.results))
    faults = report.faults
    colour = "red" if any(faults.values()) else "green"
    told = ", ".join(f"{count} {name}" for name, count in faults.items())
    console.print(f"[{colour}]{told}[/]")


def _figures_table(figures: list[Figure]) -> Table:
    table = Table("figure", "value", "goal", "", title="Figures")
    for figure in figures:
        value = f"{_number(figure.value)} {figure.unit}".strip()
        table.add_row(figure.name, value, figure.goal, _MARKS[figure.reached])
    return table


def _detail_table(results: Mapping[str, object]) -> Table:
    table = Table("", title="Lateness in ms, CPU in us per record, other load in cores")
    for column in ("records/s", "p50", "p99", "p99.9", "max", *_PROCESSES, "others"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        for line in _lines(name, result):
            table.add_row(*_cells(line))
    return table


def _lines(name: str, result: object) -> Iterator[_Line]:
    match result:
        case Relay(rounds=rounds) | Ingest(rounds=rounds):
            for found in rounds:
                cost = found.cpu_us_per_record
                yield _Line(name, found.records_per_s, None, cost, found.other_cores)
        case Bursts(rounds=bursts):
            for burst in bursts:
                cost = burst.cpu_us_per_record
                yield _Line(name, burst.records_per_s, burst.lateness, cost, burst.other_cores)
        case Streamed():
            yield _stream_line(name, result)
        case Ladder(streams=streams) | Listing(streams=streams):
            yield from (_stream_line(f"{name} {stream.rate}/s", stream) for stream in streams)


def _stream_line(name: str, stream: Streamed) -> _Line:
    cost = stream.cpu_us_per_record
    return _Line(name, stream.offered_per_s, stream.lateness, cost, stream.other_cores)


def _cells(line: _Line) -> tuple[str, ...]:
    late = line.lateness
    quantiles = () if late is None else (late.p50_ms, late.p99_ms, late.p999_ms, late.max_ms)
    lateness = [str(one) for one in quantiles] or [""] * 4
    costs = [f"{line.cpu_us[name]:.1f}" if name in line.cpu_us else "" for name in _PROCESSES]
    return (line.name, _number(line.per_s), *lateness, *costs, str(line.other_cores))


def _number(value: float) -> str:
    if math.isnan(value):
        return "not measured"
    return f"{value:,.0f}" if value >= 1_000 else f"{value:g}"
