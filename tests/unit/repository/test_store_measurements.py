"""The store comparison: each kind survives each scenario, and the contents of its table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.stores.entries import BATCH_BYTES, Wanted, batches
from tools.benchmarks.stores.kinds import KINDS
from tools.benchmarks.stores.measurement import Setup
from tools.benchmarks.stores.phases import Order, drain, fill
from tools.benchmarks.stores.results import Place, Results, found_in
from tools.benchmarks.stores.scenarios import LARGE, MIDDLE, SCENARIOS, WAITING
from tools.benchmarks.stores.tables import COLUMNS, markdown, rows

SETUP = Setup(scale=1, targets=4)
RECORDS = 300


def order_of(scenario: str, kind: str, folder: Path) -> Order:
    asked, chosen = SCENARIOS[scenario], KINDS[kind]
    return Order(
        store=chosen.store,
        folder=folder,
        wanted=Wanted(RECORDS, MIDDLE, asked.delay_ms, 4, chosen.has_stubs),
        step_ms=asked.step_ms,
        drained=asked.drained_of(RECORDS),
        cancelled=RECORDS // 2 if asked.is_cancelled else 0,
    )


def write(folder: Path, name: str, *, cpu_us: float, setup: Setup = SETUP) -> None:
    machine = dict.fromkeys(("cpu", "cores", "memory_gb", "system", "python"), "x")
    circumstances = {"date": "2026-11-26", "machine": {**machine, "versions": {"numpy": "2"}}}
    figures = {"records": 2_000.0, "append_cpu_us": cpu_us / 2, "life_cpu_us": cpu_us}
    Results(folder, setup, circumstances).recall(name, lambda: figures)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", ["fixed", "cancel", "waiting"])
def test_each_kind_lives_through_a_scenario_and_loses_nothing(
    scenario: str, kind: str, tmp_path: Path
) -> None:
    order = order_of(scenario, kind, tmp_path / "shard")
    filled = fill(lambda: None, order)
    drained = drain(lambda: None, order)
    assert min(filled["append_cpu_us"], filled["disk_bytes"], drained["due_cpu_us"]) > 0
    assert ("cancel_cpu_us" in filled) == (scenario == "cancel")


def test_a_store_that_loses_a_record_is_no_measurement(tmp_path: Path) -> None:
    order = order_of("dense", "wheel", tmp_path / "shard")
    fill(lambda: None, order)
    more = replace(order.wanted, records=RECORDS + 1)
    with pytest.raises(AssertionError):
        drain(lambda: None, replace(order, wanted=more, drained=RECORDS + 1))


def test_entries_are_the_same_each_time_and_their_bytes_are_bounded() -> None:
    wanted = Wanted(1_000, LARGE, (1, 30_000), 4, has_stubs=False)
    made = list(batches(wanted))
    assert made == list(batches(wanted))
    assert sum(map(len, made)) == 1_000
    assert all(sum(len(entry[3]) for entry in batch) <= BATCH_BYTES for batch in made)


def test_large_bodies_wait_in_smaller_numbers() -> None:
    assert WAITING.records_of(MIDDLE, 1) == 1_000_000
    assert WAITING.records_of(LARGE, 1) * LARGE <= WAITING.most_bytes


def test_what_was_measured_is_not_measured_again_but_refused_when_it_was_another_setup(
    tmp_path: Path,
) -> None:
    name = "dense-1024-0-there-wheel"
    write(tmp_path, name, cpu_us=4)
    write(tmp_path, name, cpu_us=400)
    assert found_in(tmp_path)[name]["figures"]["life_cpu_us"] == 4
    with pytest.raises(BenchmarkError, match="name another folder with --results"):
        write(tmp_path, name, cpu_us=4, setup=Setup(scale=0.01, targets=4))


def test_kinds_are_compared_within_a_round_and_the_table_is_one(tmp_path: Path) -> None:
    for number, wheel_us, rocksdb_us in ((0, 4, 6), (1, 10, 30)):
        for way in ("there", "back"):
            write(tmp_path, f"waiting-10m-100-{number}-{way}-wheel", cpu_us=wheel_us)
            write(tmp_path, f"waiting-10m-100-{number}-{way}-rocksdb", cpu_us=rocksdb_us)
    write(tmp_path, "dense-1024-0-there-wheel-kafka", cpu_us=2)
    (tmp_path / "other.json").write_text(json.dumps({}))

    found = found_in(tmp_path)
    table = [row.cells for row in rows(found)]

    assert [row.place for row in rows(found)] == [
        Place("dense", 1024),
        Place("waiting-10m", 100),
        Place("waiting-10m", 100),
    ]
    assert table[0][:5] == ("within 30 s", "1,024", "2,000", "wheel, kafka", "1.00")
    assert (table[0][-1], table[1][-1]) == ("", "")
    assert table[2][-1] == "2.25 (1.50 to 3.00)"
    assert all(len(cells) == len(COLUMNS) + 5 for cells in table)
    assert markdown(found).count("\n| ") == 1 + len(table)
