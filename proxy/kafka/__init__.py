"""Kafka access without decisions: reading, lookups, topics, group members, the settings topic.
May use config, requests and records. Begin with `ingress`, which fetches the records."""
