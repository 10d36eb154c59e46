"""The ids of a shard on disk: a memory table in front of sorted runs (FORMAT.md, "Ids")."""
