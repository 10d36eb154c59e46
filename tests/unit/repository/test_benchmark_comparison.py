"""Benchmarks against an earlier run: regressions, and kept reports."""

import io
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tools.benchmarks import table
from tools.benchmarks.__main__ import app
from tools.benchmarks.comparison import COMMITTED, Change, changes, last_committed, read
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.figures import Figure, Kind, figures_of
from tools.benchmarks.machine import Machine
from tools.benchmarks.report import Report
from tools.benchmarks.scenarios.ingest import Ingest, Ingested
from tools.benchmarks.scenarios.relay import Relay, Relayed

MOST_REPORTS = 8
MACHINE = Machine("AMD EPYC", 2, 25.3, "Linux", "3.11.7", "4.3.1", "2.16.1", "2.16.0")
SETTING = "AMD EPYC, 2 cores"


def relay(*rounds: tuple[int, float]) -> Relay:
    """Return rounds as (records/s, us a record)."""
    found = [Relayed(1, per_s, {"proxy": us}, 0.0) for per_s, us in rounds]
    return Relay(found[0], found)


def ingest(*rounds: tuple[int, float]) -> Ingest:
    found = [Ingested(1, per_s, {"proxy": us}, 0.0) for per_s, us in rounds]
    return Ingest(found[0], found)


def report(date: str = "2026-11-26T08:00:00+00:00", options: tuple[str, ...] = ()) -> Report:
    results = {"relay": relay((100, 5.0)), "ingest": ingest((60, 10.0))}
    return Report(date, False, MACHINE, options, results)


def written(folder: Path, name: str, found: Report, **figures: float) -> Path:
    content = json.loads(found.to_json())
    named = {figure["name"]: figure for figure in content["figures"]}
    for figure, value in figures.items():
        named[figure] = {**named.get(figure, {"name": figure}), "value": value}
    path = folder / name
    path.write_text(json.dumps({**content, "figures": list(named.values())}))
    return path


def change_of(
    figure: Figure, tmp_path: Path, before: float, setting: str = SETTING
) -> Change | None:
    earlier = read(written(tmp_path, "earlier.json", report(), **{figure.name: before}))
    return changes([figure], earlier, setting).get(figure.name)


@pytest.mark.parametrize(
    ("kind", "before", "now", "verdict"),
    [
        (Kind.SHARE, 1.0, 0.8, "worse"),
        (Kind.SHARE, 1.0, 1.2, "better"),
        (Kind.COST, 2.0, 2.4, "worse"),
        (Kind.TIME, 10.0, 7.0, "better"),
    ],
)
def test_less_is_worse_of_a_share_and_better_of_all_others(
    tmp_path: Path, kind: Kind, before: float, now: float, verdict: str
) -> None:
    change = change_of(Figure("x", now, "", kind), tmp_path, before)
    assert change is not None
    assert change.verdict == verdict


def test_a_rate_is_compared_with_nothing(tmp_path: Path) -> None:
    assert change_of(Figure("relay", 50, "records/s", Kind.RATE), tmp_path, 100) is None


@pytest.mark.parametrize(("now", "verdict"), [(12.4, ""), (12.6, "worse")])
def test_a_time_without_rounds_may_change_by_a_quarter(
    tmp_path: Path, now: float, verdict: str
) -> None:
    change = change_of(Figure("light p50", now, "ms", Kind.TIME), tmp_path, 10)
    assert change is not None
    assert change.verdict == verdict


@pytest.mark.parametrize(("spread", "noise"), [(0.3, 0.3), (0.01, 0.05), (None, 0.15)])
def test_the_spread_of_rounds_is_the_noise_if_there_are_rounds(
    tmp_path: Path, spread: float | None, noise: float
) -> None:
    change = change_of(Figure("x", 1, "", Kind.COST, spread=spread), tmp_path, 1)
    assert change is not None
    assert change.noise == noise


def test_times_of_another_kind_of_machine_are_not_compared_but_ratios_are(tmp_path: Path) -> None:
    other = "Intel Xeon, 2 cores"
    assert change_of(Figure("x", 20, "ms", Kind.TIME), tmp_path, 10, other) is None
    assert change_of(Figure("x", 0.5, "", Kind.SHARE), tmp_path, 1, other) is not None


@pytest.mark.parametrize("relayed", [151, 66])
@pytest.mark.parametrize("kind", [Kind.TIME, Kind.TAIL, Kind.SHARE, Kind.COST])
def test_of_a_host_of_another_pace_sizes_alone_are_compared(
    tmp_path: Path, relayed: float, kind: Kind
) -> None:
    before = {"relay": 100, "size": 5, "x": 5}
    earlier = read(written(tmp_path, "earlier.json", report(), **before))
    others = [Figure("size", 5, "MB", Kind.SIZE), Figure("x", 5, "", kind)]
    found = changes([Figure("relay", relayed, "records/s", Kind.RATE), *others], earlier, SETTING)
    assert set(found) == {"size"}
    same = changes([Figure("relay", 149, "records/s", Kind.RATE), *others], earlier, SETTING)
    assert set(same) == {"size", "x"}


def test_the_table_says_that_the_host_had_another_pace(tmp_path: Path) -> None:
    earlier = written(tmp_path, "earlier.json", report(), relay=250_000, **{"ingest / relay": 0.9})
    text = shown(report(), earlier)
    assert (
        "0 figures compared with earlier.json (AMD EPYC, 2 cores), only sizes: the relay passed "
        "100 records/s now and 250,000 then; worse beyond the noise: none." in text
    )


def test_a_figure_that_cannot_be_had_any_more_is_worse(tmp_path: Path) -> None:
    gone = [Figure("x", float("nan"), "", Kind.COST)]
    earlier = read(written(tmp_path, "earlier.json", report(), x=1))
    assert changes(gone, earlier, SETTING)["x"].verdict == "worse"


def test_what_was_not_measured_before_or_below_zero_is_not_compared(tmp_path: Path) -> None:
    assert not changes(
        [Figure("burst / relay", 1, "", Kind.SHARE), Figure("x", 1, "", Kind.COST)],
        read(written(tmp_path, "earlier.json", report(), x=-3)),
        SETTING,
    )


def test_the_newest_report_of_the_same_machine_and_options_is_taken(tmp_path: Path) -> None:
    written(tmp_path, "a.json", report("2026-11-27T00:00:00+00:00"))
    written(tmp_path, "b.json", report("2026-11-26T00:00:00+00:00"))
    written(tmp_path, "c.json", report("2026-11-28T00:00:00+00:00", ("--ids",)))

    earlier = last_committed(SETTING, tmp_path)

    assert earlier is not None
    assert earlier.name == "a.json"
    assert last_committed("Intel Xeon, 2 cores", tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", '{"figures": []}'])
def test_a_file_that_is_no_report_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(BenchmarkError, match=r"other\.json is no report"):
        read(path)


def test_the_spread_of_a_ratio_is_that_of_both_its_parts() -> None:
    results = {"relay": relay((100, 5), (110, 5)), "ingest": ingest((60, 10), (70, 12))}
    found = {figure.name: figure for figure in figures_of(results)}
    assert found["ingest / relay"].value == 0.62
    assert found["ingest / relay"].spread == pytest.approx(10 / 65 + 10 / 105, abs=0.001)
    assert found["ingest CPU / relay"].value == 2.2
    text = shown(Report("2026-11-27", False, MACHINE, (), results), None)
    assert "0.62 │ 25% │" in text


def test_cpu_that_could_not_be_read_is_no_ratio_that_reaches_a_goal() -> None:
    results = {"relay": relay((100, 5)), "ingest": ingest((60, 0.0))}
    found = {figure.name: figure for figure in figures_of(results)}
    assert found["ingest CPU / relay"].value != found["ingest CPU / relay"].value


def shown(found: Report, against: Path | None) -> str:
    printed = io.StringIO()
    earlier = None if against is None else read(against)
    table.show(found, earlier, Console(width=table.WIDTH, file=printed))
    return " ".join(printed.getvalue().split())


def test_the_table_names_what_got_worse_beyond_the_noise(tmp_path: Path) -> None:
    earlier = written(tmp_path, "earlier.json", report(), **{"ingest / relay": 0.9})
    text = shown(report(), earlier)
    assert "2 figures compared with earlier.json (AMD EPYC, 2 cores)" in text
    assert "worse beyond the noise: ingest / relay -33% (noise 15%)." in text


def test_the_table_says_plainly_that_there_is_nothing_to_compare_with() -> None:
    assert "no report of such a machine (AMD EPYC, 2 cores)" in shown(report(), None)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--plot", "overload.gif"], ".gif"),
        (["--plot", "overload.svg", "--only", "light"], "leaves"),
        (["--held", "40000", "--only", "light"], "leaves"),
        (["--json", "nowhere/report.json"], "nowhere"),
        (["--against", "missing.json"], "missing.json"),
    ],
)
def test_what_could_not_be_done_at_the_end_is_refused_at_once(
    arguments: list[str], found: str
) -> None:
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert found in refused.output


def test_committed_reports_are_whole_and_one_of_each_kind() -> None:
    paths = sorted(COMMITTED.glob("*.json"))
    settings = Counter(read(path).setting for path in paths)
    assert len(paths) <= MOST_REPORTS
    assert all(count == 1 for count in settings.values()), settings
    assert not [setting for setting in settings if "--quick" in setting]


def test_a_report_says_on_which_machine_and_with_which_options_it_was_made(tmp_path: Path) -> None:
    path = written(tmp_path, "ids.json", report(options=("--ids",)))
    assert read(path).setting == f"{SETTING}, --ids"
    assert json.loads(path.read_text())["machine"] == asdict(MACHINE)
