"""The commands `pending list` and `find`: what waits, asked of the admin ports of all instances.

May use `cli.admin_port`, `cli.kafka` and `cli.terminal`. Begin with `command`.
"""
