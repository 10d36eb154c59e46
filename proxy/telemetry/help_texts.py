"""Longer HELP texts of metrics. They define what each metric means."""

from typing import Final

GAUGES: Final = {
    "due_lag_seconds": "Time since the due time of the oldest undelivered record, even if this "
    "record waits for its next publish attempt. NaN while a worker has no session.",
    "clock_offset_seconds": "Wall clock minus the logical clock, by which records fire.",
    "clock_held": "1 while the wall clock is too far ahead and ignored, else 0.",
    "clock_lead_seconds": "Wall clock minus the broker's clock. NaN if unknown.",
    "wall_clock_seconds": "This machine's clock, in epoch seconds.",
    "store_bytes": "Size of all files in the folders of served partitions.",
    "disk_bytes": "Size of the disk under data_dir. Read every 10 s.",
    "disk_free_bytes": "Free space of the disk under data_dir. Read every 10 s.",
    "disk_full": "1 while the disk is full or nearly full and no new records are read, else 0.",
    "memory_budget_bytes": "Memory that the records of a worker may use (memory.per_worker).",
    "memory_used_bytes": "Memory used by the records of the shards. Client queues are not counted.",
    "memory_exceeded": "1 while fetching is paused because the shards have used their share, "
    "else 0. Moments under load are normal. Minutes mean that the disk is too slow.",
    "ingress_partitions": "Partitions of the ingress topic, served or not.",
}
TRANSACTIONS: Final = (
    "Kafka transactions by result. `aborted`: the proxy gave up, because the consumer group had "
    "changed or the broker throttled the proxy. If the broker aborts, the proxy tries again."
)
TRACED_RECORDS: Final = (
    "Records with a trace context, by the end of their spans. `exported`: the collector has "
    "them. `failed`: the collector refused them, or the ingress could not be read (see the "
    "log). `dropped`: the queue was full. `deleted`: retention had deleted the record. "
    "`invalid`: `traceparent` is not valid. 0 without `tracing.enabled`."
)
PURGES: Final = (
    "Purges by state, each counted once in every ingress partition. `taken-in`: the partition "
    "has read the purge. `done`: all purged records have their outcomes."
)
