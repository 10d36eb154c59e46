"""The admin port: metrics and probes for machines, an API for operators (docs/admin-api.md).

May use telemetry and what lies below. Begin with `app`.
"""
