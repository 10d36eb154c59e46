"""Spans of delivered records and dead letters, for OpenTelemetry (docs/operations/tracing.md).

May use records, scheduling, kafka, config and telemetry. Begin with `tracer`; `export` alone
imports OpenTelemetry.
"""
