"""The commands `pause`, `resume`, `pauses`, `limits` and `skip`: what changes at run time.

May use `cli.admin_port` and `cli.terminal`. Begin with `pauses`.
"""
