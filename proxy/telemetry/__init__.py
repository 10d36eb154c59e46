"""What a worker shows of itself: metrics for Prometheus, and a status for the probes.

May use records. Begin with `metrics`; `status` has the snapshot.
"""
