"""Takeover of a partition. Begin with `recovery`. The package may use scheduling, kafka and the
rooms below."""
