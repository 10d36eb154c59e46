"""Kafka transactions, written as a whole or not at all. Begin with `transaction`. The package may
use dispatch and the rooms below it."""
