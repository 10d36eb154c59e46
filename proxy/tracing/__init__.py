"""Spans of what was delivered or is a dead letter, for OpenTelemetry (docs/operations/tracing.md).

May use records, scheduling, kafka, config and telemetry; `otlp_export` alone imports OpenTelemetry.
Begin with `tracer`.
"""
