"""The command `dead-letters`: list, show and replay what could not be delivered.

May use `cli.terminal`. Begin with `command`; `proxy.dead_letters` does the work.
"""
