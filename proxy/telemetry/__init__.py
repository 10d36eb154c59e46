"""Metrics for Prometheus, and the status of a worker for probes. May use records. Begin with
`metrics`."""
