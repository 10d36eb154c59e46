"""Takeover of a partition.

May use scheduling, kafka and the rooms below. Begin with `recovery`."""
