"""The command `dead-letters`: list, show and replay what could not be delivered.

May use `cli.kafka` and `cli.terminal`. Begin with `command`; `replay` sends letters again.
"""
