"""The rules: one verdict for each record, from its history and the committed positions.

May use `evidence`, `records` and `runtime`. Begin with `evaluation`.
"""
