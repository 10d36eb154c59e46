"""The commands `pending`, `find`, `reschedule` and `purge`: what waits, asked of the admin ports.

May use `cli.admin_port`, `cli.local_shards` and `cli.terminal`. Begin with `command`.
"""
