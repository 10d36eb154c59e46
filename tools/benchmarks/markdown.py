"""Tables of docs/notes/measurements.md: `python -m tools.benchmarks.markdown report.json`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Content = dict[str, Any]

PROCESSES = ("broker", "proxy", "generator", "reader")


def render(report: Content) -> str:
    machine, faults = report["machine"], report["faults"]
    head = (
        f"{report['date']}; {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB, {machine['system']}; Kafka {machine['kafka']}, "
        f"librdkafka {machine['librdkafka']}, Python {machine['python']}."
    )
    told = ", ".join(f"{name} {count}" for name, count in faults.items())
    return "\n".join([head, "", f"Faults: {told}.", "", *_figures(report), "", *_details(report)])


def _figures(report: Content) -> Iterator[str]:
    yield "| figure | value | goal |"
    yield "|---|---:|---:|"
    for figure in report["figures"]:
        value = f"{_number(figure['value'])} {figure['unit']}".strip()
        yield f"| {figure['name']} | {value} | {figure['goal']} |"


def _details(report: Content) -> Iterator[str]:
    columns = ["measurement", "records/s", "p50", "p99", "p99.9", "max", *PROCESSES, "others"]
    yield f"| {' | '.join(columns)} |"
    yield "|---|" + "---:|" * (6 + len(PROCESSES))
    for name, scenario in report["scenarios"].items():
        for found in _measured(scenario):
            if "cpu_us_per_record" in found:
                yield _detail(name, found)


def _measured(scenario: Content) -> list[Content]:
    if "stream" in scenario:
        return [*((scenario["climb"] or {}).get("streams", [])), scenario["stream"]]
    return scenario.get("rounds") or scenario.get("streams") or [scenario]


def _detail(name: str, found: Content) -> str:
    late = found.get("lateness", {})
    cells = [f"{name} {found['rate']}/s" if "rate" in found else name]
    cells.append(_number(found.get("records_per_s") or found["offered_per_s"]))
    cells += [_number(late.get(key)) for key in ("p50_ms", "p99_ms", "p999_ms", "max_ms")]
    cells += [_number(found["cpu_us_per_record"].get(process)) for process in PROCESSES]
    return f"| {' | '.join([*cells, _number(found['other_cores'])])} |"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:g}"


if __name__ == "__main__":
    print(render(json.loads(Path(sys.argv[1]).read_text())))
