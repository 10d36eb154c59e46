"""Campaign that judges the audit: random runs with one planted fault each. A run is a random
history that the real proxy plays on a stand-in Kafka. Begin with `campaign`. The faults are in
`operators`."""
