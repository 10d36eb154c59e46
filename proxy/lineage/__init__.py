"""Follows one record from its first origin to its end, by the topics alone.

May use dead_letters, dispatch, kafka, config, client, requests and records. Begin with `tracer`: it
decides what is read next. `topics` reads, `links` says which records belong together, and `story`
tells it. The command and the admin port share this room.
"""
