"""The audit that runs until it is stopped: the same verdicts, in batches of a streaming query.

May use all other rooms. Begin with `batches` (docs/audit.md).
"""
