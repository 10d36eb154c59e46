"""A shard: all state of an ingress partition. Pure code, which calls neither Kafka nor a clock.

May use protocol and storage. Begin with `shard`; `admission` ingests records."""
