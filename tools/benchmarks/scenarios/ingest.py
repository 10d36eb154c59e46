"""Scenario ingest: the rate at which the proxy stores ingress records durably. All records are in
the topic before the proxy starts. They are due hours or days later. A record is stored durably when
the committed offset is past it. The measurement begins with the first commit, so the start of the
process does not count. If the first commit already covers all records, the measurement begins with
the start of the process."""

import time
from dataclasses import dataclass

from tools.benchmarks.loads import send
from tools.benchmarks.offsets import Progress
from tools.benchmarks.processes import Job
from tools.benchmarks.scale import FAR_MS
from tools.benchmarks.trial import Trial, World, trial

PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Ingested:
    records: int
    records_per_s: float
    cpu_us_per_record: dict[str, float]
    other_cores: float


@dataclass(frozen=True, slots=True)
class Ingest:
    median: Ingested
    rounds: list[Ingested]


def measure(world: World) -> Ingest:
    rounds = [run_once(world, f"ingest-{number}") for number in range(world.scale.rounds)]
    by_rate = sorted(rounds, key=lambda ingested: ingested.records_per_s)
    return Ingest(by_rate[len(by_rate) // 2], rounds)


def run_once(world: World, name: str) -> Ingested:
    world.say(f"{name}: {world.scale.ingest_records} records due far away")
    with trial(world, name) as made:
        before = made.wait_until_ingested(PATIENCE_S)
        made.proxy.stop()
        with Job(send, made.load(world.scale.ingest_records, FAR_MS)) as generator:
            generator.result(PATIENCE_S)
        return _measure(made, before)


def _measure(made: Trial, before: int) -> Ingested:
    started = Progress(time.monotonic(), before)
    made.proxy.start()
    with made.offsets() as offsets:
        written = offsets.written()
        first = offsets.wait_for(before + 1, PATIENCE_S)
        meter = made.meter()
        last = offsets.wait_for(written, PATIENCE_S)
    bill = meter.bill({})
    if first.records == last.records:
        first = started
    records = last.records - first.records
    return Ingested(
        records=records,
        records_per_s=round(records / (last.at_s - first.at_s)),
        cpu_us_per_record=bill.us_per_record(records),
        other_cores=bill.other_cores,
    )
