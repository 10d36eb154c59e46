"""Audits of a site (the topics of one run), each in its own process. Their verdicts are compared
with the verdicts that `mix` expects."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.benchmarks.audit_scale.mix import VERDICTS
from tools.benchmarks.audit_scale.writing import Site
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.peak import ResidentPeak

AUDIT: Final = ("-m", "spark_jobs.audit_delivery")
CONTINUE: Final = "--continue"
MOST_SHOWN: Final = 2_000
STAYS: Final = "pending"
"""A continued audit gives this verdict again to the records that are still pending."""


@dataclass(frozen=True, slots=True)
class Took:
    seconds: float
    cpu_s: float
    peak_bytes: int
    said: str


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Took:
    """Run Python with these arguments. Raise `BenchmarkError` if it fails."""
    began_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment and {**environment},
    ) as process:
        peak = ResidentPeak(process.pid)
        said, complained = process.communicate()
    took_s = time.monotonic() - began_s
    peak.close()
    if process.returncode:
        raise BenchmarkError(
            f"{' '.join(command)} ended with {process.returncode}: "
            f"{complained[-MOST_SHOWN:]}{said[-MOST_SHOWN:]}"
        )
    return Took(took_s, peak.cpu_s, peak.bytes, said.splitlines()[-1])


def audit(
    site: Site,
    output: Path,
    hundreds: range,
    driver_memory: str,
    *,
    goes_on: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Took:
    given = [*options(site), f"--output={output}", f"--driver-memory={driver_memory}", "--json"]
    took = run([*AUDIT, *given, *([CONTINUE] if goes_on else [])], environment)
    check(json.loads(took.said), hundreds)
    return took


def options(site: Site) -> list[str]:
    topics = site.topics
    return [
        f"--bootstrap={site.bootstrap}",
        f"--group={topics.group}",
        f"--ingress={topics.ingress}",
        f"--dead-letters={topics.dead_letters}",
        f"--outcomes={topics.outcomes}",
        f"--settings-topic={topics.settings}",
    ]


def check(found: Mapping[str, Any], hundreds: range) -> None:
    """Check that each verdict occurs as often as `mix` says, and that there is no violation."""
    given = {name: count for name, count in found["verdicts"].items() if count}
    expected = {name: count * len(hundreds) for name, count in VERDICTS.items() if hundreds}
    expected[STAYS] = VERDICTS[STAYS] * hundreds.stop
    assert given == expected, (given, expected)
    assert found["violations"] == 0, found
    assert found["result"] == "held", found
