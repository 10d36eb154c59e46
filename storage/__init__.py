"""The engine: the pending entries and the ids of one shard, behind `Store` and `Register`.

May use numpy and its own packages. It knows no Kafka, clocks or threads: callers pass times,
batches and a folder. Begin with `store` (the interface), then `tiered_store`.
"""
