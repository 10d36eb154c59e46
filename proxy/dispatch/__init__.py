"""Decisions about due records. This package is pure: it calls neither Kafka nor a clock.

May use scheduling, config and protocol. Begin with `dispatcher`."""
