"""Everything read from the broker: committed positions, settings, offset ranges, records.
May use `runtime` and `records`. Begin with `snapshot`: the order in which an audit reads.
"""
