"""The command `check`: what would stop the proxy or lose a record, and what to do about it.

May use `cli.terminal`. Begin with `command`: it asks `settings` and `broker`, which
give `findings`.
"""
