"""The commands `pending list`, `find` and `reschedule`: what waits, asked of the admin ports.

May use `cli.admin_port`, `cli.kafka` and `cli.terminal`. Begin with `command`.
"""
