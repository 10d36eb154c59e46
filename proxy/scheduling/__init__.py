"""A shard: an ingress partition's pending records. The package is pure.

May use protocol and storage. Begin with `shard`; `admission` takes records in."""
