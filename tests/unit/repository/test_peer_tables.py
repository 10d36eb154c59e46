"""Comparison tables with other schedulers: winners of rows, and missing measurements."""

import json
from pathlib import Path

from tools.benchmarks.peers.tables import Row, render

TITLES = {"relay": "plain relay", "ours": "ours", "other": "the other"}


def write(folder: Path, peer: str, scenario: str, found: dict[str, object]) -> None:
    machine = dict.fromkeys(
        ("cpu", "cores", "memory_gb", "system", "kafka", "librdkafka", "python"), "x"
    )
    content = {"date": "2026-11-26", "machine": machine, "quick": False, "version": "1"}
    (folder / f"{peer}.{scenario}.json").write_text(json.dumps({**content, "found": found}))


def test_a_peer_that_is_better_than_we_are_is_the_winner_of_the_row() -> None:
    assert Row("lateness", {"ours": 12.0, "other": 3.0}).winners() == {"other"}
    assert Row("rate", {"ours": 12.0, "other": 30.0}, most_wins=True).winners() == {"other"}


def test_the_relay_wins_nothing_nor_does_anyone_when_all_are_equal() -> None:
    assert Row("rate", {"relay": 99.0, "ours": 2.0, "other": 1.0}, True).winners() == {"ours"}
    assert Row("missing", {"ours": 0.0, "other": 0.0}).winners() == set()


def test_a_peer_with_a_fault_wins_no_row_that_it_touches() -> None:
    assert Row("late", {"ours": 12.0, "other": -3.0}, faulty=frozenset({"other"})).winners() == {
        "ours"
    }


def test_who_was_not_measured_does_not_win() -> None:
    assert Row("lateness", {"ours": 12.0, "other": None}).winners() == set()


def test_results_of_several_runs_add_up_to_one_table(tmp_path: Path) -> None:
    clean = {"received": 5, "early": 0, "missing": 0, "duplicate": 0}
    twice = {**clean, "duplicate": 2}
    light: dict[str, object] = {"lateness": {"p50_ms": 40}, "verdict": clean}
    burst = {"records_per_s": 50_000, "first_ms": 40, "verdict": clean}
    hurried = {"records_per_s": 90_000, "first_ms": 4, "verdict": twice}
    write(tmp_path, "ours", "light", light)
    write(tmp_path, "other", "light", {**light, "lateness": {"p50_ms": 4}})
    write(tmp_path, "ours", "burst", burst)
    write(tmp_path, "other", "burst", hurried)
    write(tmp_path, "relay", "burst", {"records_per_s": 90_000, "first_ms": None})

    table = render(tmp_path, TITLES)

    assert "| | plain relay | ours | the other |" in table
    assert "| light: p50, ms late | - | 40 | **4** |" in table
    assert "| burst, records/s | 90,000 | **50,000** | 90,000 |" in table
    assert "| burst, first record, ms | - | **40** | 4 |" in table
    assert "| twice, in all of it | 0 | **0** | 2 |" in table
    assert "| first delivery after it, s | - | - | - |" in table


def test_a_figure_that_is_not_a_number_was_not_measured(tmp_path: Path) -> None:
    late = {"p50_ms": float("nan"), "p99_ms": 1.5}
    write(tmp_path, "ours", "light", {"lateness": late})

    table = render(tmp_path, TITLES)

    assert "| light: p50, ms late | - |" in table
    assert "| light: p99, ms late | 1.5 |" in table
