"""Pending records, exported from one cluster and imported into another.

May use recovery, publishing, dispatch and the rooms below. Begin with `export`."""
