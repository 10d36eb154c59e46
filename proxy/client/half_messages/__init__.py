"""Half messages: delivered only if the producer's own transaction commits.

May use the modules of `proxy.client`, not `retries`. Begin with `transactional_producer`.
"""
