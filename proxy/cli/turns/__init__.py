"""The command `turns`: what the workers' loops did within the last minute.

May use `cli.admin_port` and `cli.terminal`. Begin with `command`.
"""
