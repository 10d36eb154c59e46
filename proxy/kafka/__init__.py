"""Access to Kafka, without decisions.

May use config and protocol. Begin with `ingress`, which fetches the records."""
