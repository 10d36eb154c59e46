"""Traces of single records from origin to end, read from the topics alone.

May use dead_letters, dispatch, kafka, config and protocol. Begin with `tracer`."""
