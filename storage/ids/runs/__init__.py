"""The register's files: the layout of a run, its filter, writing, reading and merging runs.

May use shard and what lies below it; knows no memtable. Begin with `layout`.
"""
