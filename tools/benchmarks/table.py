"""Report as tables for a terminal: the figures with their goals and the figures of an earlier run,
and the details of all streams."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tools.benchmarks.by_second import Second
from tools.benchmarks.comparison import Change, Earlier, changes, other_pace
from tools.benchmarks.figures import Figure
from tools.benchmarks.report import Report
from tools.benchmarks.scenarios.burst import Bursts
from tools.benchmarks.scenarios.ingest import Ingest
from tools.benchmarks.scenarios.listing import Listing
from tools.benchmarks.scenarios.overload import Overload
from tools.benchmarks.scenarios.relay import Relay
from tools.benchmarks.steady import Ladder, Streamed
from tools.benchmarks.verdict import Lateness

WIDTH = 120

_MARKS = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}
_VERDICTS = {"worse": "[red]worse[/]", "better": "[green]better[/]", "": ""}
_PROCESSES = ("broker", "proxy", "generator", "reader")


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    per_s: float
    lateness: Lateness | None
    cpu_us: dict[str, float]
    other_cores: float


def show(report: Report, earlier: Earlier | None, console: Console) -> None:
    machine = report.machine
    console.print(
        f"{report.date}  {machine.cpu}, {machine.cores} cores, {machine.memory_gb} GB; "
        f"Kafka {machine.kafka}, librdkafka {machine.librdkafka}, Python {machine.python}"
    )
    changed = {} if earlier is None else changes(report.figures, earlier, report.setting)
    console.print(_figures_table(report.figures, earlier, changed))
    console.print(_detail_table(report.results))
    if isinstance(overload := report.results.get("overload"), Overload):
        console.print(_seconds_table(overload.seconds))
    console.print(_compared(report, earlier, changed), highlight=False, markup=False)
    faults = report.faults
    colour = "red" if any(faults.values()) else "green"
    told = ", ".join(f"{count} {name}" for name, count in faults.items())
    console.print(f"[{colour}]{told}[/]")


def _figures_table(
    figures: list[Figure], earlier: Earlier | None, changed: Mapping[str, Change]
) -> Table:
    before = () if earlier is None else (earlier.date[:10], "change", "noise", "")
    table = Table("figure", "value", "spread", "goal", "", *before, title="Figures")
    for figure in figures:
        value = f"{_number(figure.value)} {figure.unit}".strip()
        cells = _change_cells(changed[figure.name]) if figure.name in changed else ()
        spread = "" if figure.spread is None else f"{figure.spread:.0%}"
        table.add_row(figure.name, value, spread, figure.goal, _MARKS[figure.reached], *cells)
    return table


def _change_cells(change: Change) -> tuple[str, ...]:
    shares = (f"{change.change:+.0%}", f"{change.noise:.0%}")
    return (_number(change.before), *shares, _VERDICTS[change.verdict])


def _compared(report: Report, earlier: Earlier | None, changed: Mapping[str, Change]) -> str:
    if earlier is None:
        return f"Not compared: docs/benchmarks has no report of such a machine ({report.setting})."
    worse = [
        f"{name} {change.change:+.0%} (noise {change.noise:.0%})"
        for name, change in changed.items()
        if change.verdict == "worse"
    ]
    compared = f"{len(changed)} figures compared with {earlier.name} ({earlier.setting})"
    if paces := other_pace(report.figures, earlier):
        now, before = map(_number, paces)
        compared += f", only sizes: the relay passed {now} records/s now and {before} then"
    return f"{compared}; worse beyond the noise: {', '.join(worse) or 'none'}."


def _detail_table(results: Mapping[str, object]) -> Table:
    table = Table("", title="Lateness in ms, CPU in us per record, other load in cores")
    for column in ("records/s", "p50", "p99", "p99.9", "max", *_PROCESSES, "others"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        for line in _lines(name, result):
            table.add_row(*_cells(line))
    return table


def _seconds_table(seconds: list[Second]) -> Table:
    table = Table(
        title="Overload by second; lateness in ms: short and long delays by due, all by arrival"
    )
    late = ("short p50", "p99", "max", "long p50", "p99", "max")
    for column in ("second", "sent", "due", *late, "delivered", "p99", "MB"):
        table.add_column(column, justify="right")
    for second in seconds:
        table.add_row(
            *(str(second.at_s), str(second.sent), str(second.due)),
            *(*_late_cells(second.short), *_late_cells(second.long)),
            *(str(second.delivered), _whole(second.delivered_p99_ms)),
            str(second.anonymous_mb),
        )
    return table


def _late_cells(late: Lateness) -> Iterator[str]:
    yield from (_whole(value_ms) for value_ms in (late.p50_ms, late.p99_ms, late.max_ms))


def _whole(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.0f}"


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
        case Overload(climb=climb, stream=stream):
            yield from _lines("climb", climb)
            yield _stream_line(f"{name} {stream.rate}/s", stream)


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
