"""The running proxy: processes, sessions with the broker, and the loop that moves records.

May use every room but the command line. Begin with `pipeline`: the journey of a record, in order.
"""
