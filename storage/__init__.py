"""The engine: the pending entries and the ids of one shard, behind `Store` and `Register`.

May use numpy and its own rooms; it knows neither Kafka nor clocks nor threads, and is handed
times, batches and a folder. Begin with `store` (what it offers), then `tiered_store`.
"""
