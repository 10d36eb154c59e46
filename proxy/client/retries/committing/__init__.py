"""What is done of the records that were read, and how it is committed with their retry requests.

May use the modules of `proxy.client`. Begin with `backlog`; how a commit is made: `settlement`.
"""
