"""A shard: an ingress partition's pending records. Begin with `shard`. The package is pure, and may
use protocol and storage. `admission` takes records in."""
