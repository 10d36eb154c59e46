"""Spark jobs of the audit, which proves from the topics alone how each ingress record ended.
Each room (a folder here) names the rooms that it may use. Begin with `audit_delivery`
(docs/audit.md). A docstring that names a schema in capitals (RECORDS, ENDS, VERDICTS) means a frame
with its columns.
"""
