"""Dead letters: found in their topic, and replayed into the ingress, none twice.

May use publishing, kafka, config, requests and records. Begin with `letters`, which decides without
Kafka; `replayer` sends, `marks_topic` keeps account of what was replayed.
"""
