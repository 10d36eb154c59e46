"""A real Kafka broker from PyPI's JRE and Maven's jars: for trials, tests and benchmarks.

`EmbeddedBroker` is the broker as an object, `run_broker` the same in the foreground.
"""

from proxy.embedded.broker import EmbeddedBroker
from proxy.embedded.foreground import run_broker

__all__ = ["EmbeddedBroker", "run_broker"]
