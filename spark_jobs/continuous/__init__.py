"""The audit that goes on: the same verdicts, in batches of a streaming query (docs/audit.md)."""
