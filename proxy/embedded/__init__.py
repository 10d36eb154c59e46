"""A real Kafka broker from PyPI's JRE and Maven's jars, for trials, tests and benchmarks.

May use errors. Begin with `broker`; `jars` has the runtime and the jars.
"""

from proxy.embedded.broker import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
