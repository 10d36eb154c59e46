"""A timer service beside Kafka: records arrive in their topic when due, exactly once."""

__version__ = "0.1.0"
"""The one place that says it: the distribution, the command and the metrics read it here."""
