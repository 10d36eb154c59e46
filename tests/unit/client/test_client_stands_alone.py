"""The client works with only confluent_kafka installed."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
ASK = """
import sys
import kafka_delay
print(*sorted(sys.modules))
"""


def _imported() -> set[str]:
    asked = subprocess.run(
        [sys.executable, "-S", "-c", ASK],
        env={"PYTHONPATH": f"{REPOSITORY / 'client'}:{_site_packages()}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(asked.stdout.split())


def _site_packages() -> Path:
    return Path(str(importlib.import_module("confluent_kafka").__file__)).parents[1]


def test_importing_the_client_brings_in_confluent_kafka_and_nothing_else() -> None:
    packages = {name.split(".")[0] for name in _imported() - {"__main__"}}
    assert packages - set(sys.stdlib_module_names) == {"kafka_delay", "confluent_kafka"}


def test_the_place_where_the_client_was_says_where_it_is_now() -> None:
    with pytest.raises(
        ImportError, match="pip install kafka-delay-client`, and replace `from proxy"
    ):
        importlib.import_module("proxy.client")
