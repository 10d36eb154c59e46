"""Decisions about due records. The package is pure.

May use scheduling, config and protocol. Begin with `dispatcher`."""
