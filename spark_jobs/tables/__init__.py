"""Delta tables of one location: what an audit leaves, and what it goes on from.

May use `runtime`. Begin with `tables`.
"""
