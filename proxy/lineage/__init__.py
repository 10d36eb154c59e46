"""What became of one record, from its first origin to its end, from the topics alone.

May use dead_letters, dispatch, kafka, config, client, requests and records. Begin with
`record_trace`, for the command and the admin port alike. `tracer` says what is read next,
`kafka_topics` reads it, and `chain.story` makes a story of what was found.
"""
