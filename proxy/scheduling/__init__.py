"""One shard: the pending records of an ingress partition, and its next transaction. Pure.

May use requests, records and storage. Begin with `shard`. `admission` takes records in.
"""
