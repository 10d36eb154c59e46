"""The command `demo`: all kinds of records, a SIGKILL in the middle, and the audit's verdicts.

May use the rest of `cli.trial`, `cli.admin_port`, `cli.kafka` and `cli.terminal`. Begin with
`play`; `plan` and `stories` say what is sent and what must come of it.
"""
