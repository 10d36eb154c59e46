"""Metrics for Prometheus, and the status of a worker for probes.

May use config, protocol and storage. Begin with `metrics`."""
