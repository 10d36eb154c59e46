"""The ids of a shard on disk, an LSM tree: memtables in front of sorted runs.

May use shard and what lies below it, not the stores' kinds. Begin with `disk_register`, then
storage/FORMAT.md, "Ids".
"""
