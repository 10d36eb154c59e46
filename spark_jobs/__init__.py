"""Spark jobs of the audit, which proves from the topics alone how each ingress record ended.
Each room (a folder here) names the rooms that it may use. Begin with `audit_delivery`
(docs/audit.md). If a docstring names a schema in capitals (RECORDS, ENDS, VERDICTS), it
means a frame with these columns.
"""
