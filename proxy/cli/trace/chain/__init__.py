"""A chain of records: which belong together, where they can lie, the steps that they make. Pure.

May use `cli.kafka`, `cli.terminal` and every room of the proxy. Begin with `link`. `story` makes
the steps; `traced_record` says what a trace asks of the topics.
"""
