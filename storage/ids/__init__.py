"""The ids of a shard on disk, an LSM tree: memtables in front of sorted runs.

May use the modules that lie directly in storage, not the kinds of stores. Begin with `register`,
then storage/FORMAT.md, "Ids".
"""
