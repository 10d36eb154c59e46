"""The commands with an embedded broker: `broker`, `dev` and `demo`.

May use `cli.kafka` and `cli.terminal`. Begin with `dev`; `demo.play` has what the demo does.
"""
