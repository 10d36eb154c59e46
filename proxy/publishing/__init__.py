"""Kafka transactions, written as a whole or not at all.

May use dispatch and the rooms below it (docs/architecture.md). Begin with `transaction`."""
