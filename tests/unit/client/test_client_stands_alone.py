"""The client can be used where nothing but confluent_kafka is installed."""

import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from proxy.client import header_names

REPOSITORY = Path(__file__).parents[3]
ASK = """
import sys
import proxy.client
print(*sorted(sys.modules))
"""
ALLOWED = ("proxy.client", "proxy.times", "confluent_kafka")


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
    names = _imported() - {"proxy", "__main__"}
    foreign = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert "proxy.client.delay_producer" in foreign
    assert not {name for name in foreign if not name.startswith(ALLOWED)}


def _spelt_by_the_proxy() -> set[str]:
    module = importlib.import_module(_home_of_names())
    spelt: set[str] = set()
    for value in vars(module).values():
        spelt |= {value} if isinstance(value, str) else set()
        spelt |= set(value) if isinstance(value, frozenset) else set()
    return spelt


def _home_of_names() -> str:
    found = find_spec("proxy.headers")
    return "proxy.headers" if found else "proxy.protocol"


def test_the_client_spells_every_header_as_the_proxy_does() -> None:
    ours = {
        value
        for value in vars(header_names).values()
        if isinstance(value, str) and value.startswith("timer-")
    }
    assert len(ours) > 14
    assert ours <= _spelt_by_the_proxy()
