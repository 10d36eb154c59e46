"""A consumer whose failed records are retried later by the proxy.

May use `proxy.client`'s own modules. Begin with `retry_consumer`.
"""
