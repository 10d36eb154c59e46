"""One stay in the consumer group: its parts, and the loop that moves records through them.

May use every room but worker and cli. Begin with `pipeline`: the journey of a record, in order.
`assembly` wires the parts. `session` joins the group and leaves it.
"""
