"""OpenTelemetry spans of delivered records and dead letters (docs/operations/tracing.md).

May use telemetry, scheduling, kafka, config and protocol. Begin with `tracer`."""
