"""The register's files: the layout of a run, its filter, writing, reading and merging runs.

May use shard.files, register and errors; knows no memtable. Begin with `layout`.
"""
