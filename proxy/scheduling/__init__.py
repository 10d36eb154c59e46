"""A shard: an ingress partition's pending records. Pure: it calls neither Kafka nor a clock.

May use protocol and storage. Begin with `shard`; `admission` takes records in."""
