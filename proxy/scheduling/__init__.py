"""One shard: what of an ingress partition pends, and what the next transaction ends. Pure.

May use requests, records and storage. Begin with `shard`; `admission` takes records in.
"""
