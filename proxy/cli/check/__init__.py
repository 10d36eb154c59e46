"""The command `check`: what would stop the proxy or lose a record, and what to do about it.

May use `cli.ingress` and `cli.terminal`. Begin with `command`; `findings` has one line of it.
"""
