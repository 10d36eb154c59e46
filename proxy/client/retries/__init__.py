"""A consumer whose failed records are retried later by the proxy.

May use the modules of `proxy.client`, not `half_messages`. Begin with `retry_consumer`.
"""
