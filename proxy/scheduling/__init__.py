"""One shard: what of an ingress partition pends, and what its next transaction holds. Pure.

May use requests, records and storage. Begin with `shard`; `admission` takes records in.
"""
