"""A chain of records: which belong together, where they can lie, the steps that they make. Pure.

May use what lineage may use. Begin with `link`. `story` makes the steps; `traced_record` says what
a trace asks of the topics.
"""
