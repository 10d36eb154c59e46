"""The rules: one verdict for each record, from its history and the committed positions.

May use `evidence` and what it uses. Begin with `evaluation`, which lists the rules in order.
"""
