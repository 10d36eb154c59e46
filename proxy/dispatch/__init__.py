"""Decisions about due records. Pure: it calls neither Kafka nor a clock.

May use scheduling, config and protocol. Begin with `dispatcher`."""
