"""Measurement with one number of records: a bare Spark read, an audit, and a continued audit."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tools.benchmarks import topics as broker_topics
from tools.benchmarks.audit_scale.auditing import Took, audit, run
from tools.benchmarks.audit_scale.mix import RECORDS
from tools.benchmarks.audit_scale.writing import Site, write

FURTHER: Final = 10
MOST_FURTHER: Final = 1_000_000
YARDSTICK: Final = ("-m", "tools.benchmarks.audit_scale.yardstick")


@dataclass(frozen=True, slots=True)
class Scale:
    bootstrap: str
    folder: Path
    driver_memory: str
    value_bytes: int
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall times, each with the start of a process. `bare_start_s` is the part of `bare_s` before
    reading. The audit's start is assumed to take the same time."""

    records: int
    written_s: float
    bare_s: float
    bare_start_s: float
    audit_s: float
    audit_cpu_s: float
    peak_bytes: int
    further_records: int = 0
    further_s: float = 0.0

    @property
    def ratio(self) -> float:
        """Return the audit's time divided by the bare read's time, both with their starts."""
        return self.audit_s / self.bare_s

    @property
    def ratio_without_start(self) -> float:
        return (self.audit_s - self.bare_start_s) / (self.bare_s - self.bare_start_s)

    @property
    def per_s(self) -> float:
        return self.records / self.audit_s

    def to_json(self) -> dict[str, Any]:
        counted = {name: round(value, 1) for name, value in asdict(self).items()}
        ratios = {"ratio": self.ratio, "ratio_without_start": self.ratio_without_start}
        rounded = {name: round(value, 2) for name, value in ratios.items()}
        return {**counted, **rounded, "per_s": round(self.per_s)}


def measure(scale: Scale, records: int) -> Measured:
    """Write and audit records, then write more and continue the audit."""
    site, written_s = _written(scale, f"audit{records}", records)
    first = scale.folder / site.topics.name
    hundreds = range(records // RECORDS)
    bare, read_s = _read_bare(site, scale)
    took = audit(site, first, hundreds, scale.driver_memory, environment=scale.environment)
    found = Measured(
        records,
        written_s,
        bare.seconds,
        bare.seconds - read_s,
        took.seconds,
        took.cpu_s,
        took.peak_bytes,
    )
    further = range(hundreds.stop, hundreds.stop + _further(records) // RECORDS)
    write(site, further)
    went_on = audit(
        site,
        first,
        further,
        scale.driver_memory,
        goes_on=True,
        environment=scale.environment,
    )
    broker_topics.delete_starting_with(scale.bootstrap, f"{site.topics.name}.")
    return replace(found, further_records=len(further) * RECORDS, further_s=went_on.seconds)


def audited(scale: Scale, records: int, rounds: int) -> list[Took]:
    site, _ = _written(scale, f"audit{records}", records)
    hundreds = range(records // RECORDS)
    return [
        audit(
            site,
            scale.folder / f"{site.topics.name}-{number}",
            hundreds,
            scale.driver_memory,
            environment=scale.environment,
        )
        for number in range(rounds)
    ]


def _written(scale: Scale, name: str, records: int) -> tuple[Site, float]:
    site = Site.create(scale.bootstrap, name, round(time.time() * 1_000), scale.value_bytes)
    began_s = time.monotonic()
    write(site, range(records // RECORDS))
    return site, time.monotonic() - began_s


def _further(records: int) -> int:
    return min(MOST_FURTHER, max(RECORDS, records // FURTHER))


def _read_bare(site: Site, scale: Scale) -> tuple[Took, float]:
    took = run([*YARDSTICK, site.bootstrap, site.topics.name, scale.driver_memory])
    return took, float(json.loads(took.said)["read_s"])
