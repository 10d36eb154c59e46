"""What every kind of store shares: memtables over a disk tier, checkpoint, counts, a folder's care.

May use store, register, options and errors; knows no kind. Begin with `tiered_store`.
"""
