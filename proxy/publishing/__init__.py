"""Kafka transactions: dispatched records are written as a whole or not at all. The package may use
dispatch and the rooms below it. Begin with `transaction`."""
