"""`trace`: what became of one record, from its first origin to its end, from the topics alone.

May use `cli.kafka`, `cli.terminal` and every room of the proxy. Begin with `command`. `tracer` says
what is read next, `kafka_topics` reads it, and `chain.story` makes a story of what was found.
"""
