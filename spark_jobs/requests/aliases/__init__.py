"""Other schedulers' headers (docs/aliases.md), translated into this proxy's own.

May use what `requests` may, and its codes, targets and times. Begin with `translation`.
"""
