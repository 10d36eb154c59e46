"""Messages that are delivered only if the producer's own transaction commits.

May use `proxy.client`'s own modules. Begin with `transactional_producer`.
"""
