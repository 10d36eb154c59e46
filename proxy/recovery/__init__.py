"""Takeover of a partition from the committed offsets, the local folder and the ingress. The package
may use scheduling, kafka and the rooms below. Begin with `recovery`."""
