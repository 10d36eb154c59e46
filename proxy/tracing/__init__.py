"""OpenTelemetry spans of delivered records and dead letters (docs/operations/tracing.md). May use
records, scheduling, kafka, config and telemetry. Begin with `tracer`."""
