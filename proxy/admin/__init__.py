"""The admin port: metrics, probes, and an API for operators (docs/admin-api.md).

May use telemetry and the rooms below. Begin with `app`."""
