"""Takeover of a partition.

May use scheduling, kafka and the rooms below them (docs/architecture.md). Begin with `recovery`."""
