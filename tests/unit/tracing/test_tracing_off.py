"""Off, nothing of OpenTelemetry is loaded; on, and without the extra, the proxy refuses to run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proxy import extras
from proxy.config.settings import Settings
from proxy.extras import ExtraMissing
from proxy.worker.run import run

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


def test_on_without_the_extra_the_proxy_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    with pytest.raises(ExtraMissing, match="extra `otel`"):
        run(Settings.model_validate({"tracing": {"enabled": True}}))
