"""A proxy without spans loads no OpenTelemetry module."""

from __future__ import annotations

import subprocess
import sys

OFF = """
import sys
from proxy.config.settings import Settings
from proxy.telemetry.metrics import Metrics
from proxy.tracing.tracer import open_tracer
import proxy.worker.run
with open_tracer(Settings(), Metrics()) as tracer:
    assert tracer is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_off_nothing_of_opentelemetry_is_imported() -> None:
    ended = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
