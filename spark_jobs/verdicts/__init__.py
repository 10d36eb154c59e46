"""The rules, which give each record one verdict by its history and the committed positions.
May use `histories` and its rooms. Begin with `evaluation`, which lists the rules in order.
"""
