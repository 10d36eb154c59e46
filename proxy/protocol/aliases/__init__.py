"""Header aliases: the same request in the headers of other schedulers, enabled by name.

May use records and requests' pure readers. Begin with `translation`; docs/aliases.md has a row for
each rule, and a test holds both together.
"""
