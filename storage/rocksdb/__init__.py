"""The kind `rocksdb`: entries sorted by (due, offset) in a RocksDB.

May use shard and what lies below it, not the other kinds. Begin with `rocks_tier`.
"""
