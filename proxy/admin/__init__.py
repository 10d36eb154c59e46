"""The admin port: metrics, probes, and an API for operators (docs/admin-api.md).

May use telemetry and what lies below. Begin with `app`."""
