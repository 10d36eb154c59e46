"""Runs a user's handler: in threads or on an event loop, in order by key, with a time limit.

May use the modules of `proxy.client` and `retries.received`. Begin with `handling`; what the
handler's exceptions mean is in `failure_rules`.
"""
