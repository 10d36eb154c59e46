"""A real Kafka broker from PyPI's JRE and Maven's jars: for trials, tests and benchmarks.

May use errors and extras. Begin with `broker`; `java` has the runtime and the jars.
"""

from proxy.embedded.broker import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
