"""Which records are done, and how retry requests are stored and offsets committed.

May use the modules of `proxy.client`. Begin with `backlog`; how a commit is made: `settlement`.
"""
