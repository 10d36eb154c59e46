"""A timer service beside Kafka: records arrive in their topic when due, exactly once.

docs/architecture.md has the map of the rooms and the glossary. May use storage. Begin with
`session.pipeline`, where a record's whole journey stands in one function.
"""

__version__ = "0.1.0"
"""The one place that says it: the distribution, the command and the metrics read it here."""
