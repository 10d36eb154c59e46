"""The running proxy: processes, sessions with the broker, and the loop that moves records.

May use every room but the command line. Begin with `pipeline`: the journey of a record, in order.
`assembly` wires it, `session` joins and leaves the group, `run` starts it all.
"""
