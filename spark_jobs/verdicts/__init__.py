"""The rules, which give each record one verdict by its history and the committed positions.
May use `histories` and the rooms that `histories` uses. Begin with `evaluation`, which lists the
rules in order.
"""
