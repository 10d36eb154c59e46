"""The commands `pause`, `resume`, `pauses` and `limits`: what changes at run time.

May use `cli.admin_port` and `cli.terminal`. Begin with `pauses`.
"""
