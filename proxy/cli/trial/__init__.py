"""The commands with an embedded broker: `broker` and `dev`.

May use `cli.kafka` and `cli.terminal`. Begin with `dev`.
"""
