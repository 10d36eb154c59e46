"""The audit that runs until it is stopped: the same verdicts, in batches of a streaming query.

May use every room above it in the audit's journey. Begin with `batches` (docs/audit.md).
"""
