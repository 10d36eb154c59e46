"""The client can be used where nothing but confluent_kafka is installed."""

import importlib
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
ASK = """
import sys
import proxy.client
print(*sorted(sys.modules))
"""
ALLOWED = (
    "proxy.client",
    "proxy.protocol.bounded_json",
    "proxy.protocol.headers",
    "proxy.protocol.times",
    "proxy.protocol.policy",
    "confluent_kafka",
)


def _imported() -> set[str]:
    asked = subprocess.run(
        [sys.executable, "-S", "-c", ASK],
        env={"PYTHONPATH": f"{REPOSITORY}:{_site_packages()}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(asked.stdout.split())


def _site_packages() -> Path:
    return Path(str(importlib.import_module("confluent_kafka").__file__)).parents[1]


def test_importing_the_client_brings_in_nothing_else_of_the_proxy_nor_of_others() -> None:
    rooms = {"proxy", "proxy.protocol"}  # their docstrings alone
    names = _imported() - rooms - {"__main__"}
    foreign = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert "proxy.client.delay_producer" in foreign
    assert not {name for name in foreign if not name.startswith(ALLOWED)}
