"""Dead letters: found in their topic, and replayed into the ingress, none twice.

May use publishing, kafka, config, requests and records. Begin with `letters`, which decides without
Kafka; `dead_letter_topics` reads, `replay` has the steps of a replay, for the command and for the
admin port alike.
"""
