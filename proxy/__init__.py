"""A timer service beside Kafka: records arrive in their topic when due, exactly once.

May use storage. Begin with `session.pipeline`, which shows a record's whole journey.
"""

__version__ = "0.1.0"
"""The version of the distribution, the command and the metrics."""
