"""Whatever talks to the broker and decides nothing: reading, looking up, topics, settings topic.

May use config, requests and records. Begin with `ingress`, which fetches the records.
"""
