"""The protocol: what ingress records ask for, how they are kept, and how they end. Pure.

May use storage. Begin with `request_reader`, which reads records; `parsed` has what they ask for.
"""
