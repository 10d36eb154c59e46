"""Pending records moved to another cluster.

May use recovery, publishing, dispatch and the rooms below. Begin with `export`."""
