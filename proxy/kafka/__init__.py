"""Access to Kafka, without decisions. May use config, requests and records. Begin with `ingress`,
which fetches the records."""
