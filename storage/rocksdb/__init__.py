"""The kind `rocksdb`: entries sorted by (due, offset) in a RocksDB.

May use what lies at the top of storage, not the other kinds. Begin with `tier`.
"""
