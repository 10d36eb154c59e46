"""The audit: Spark jobs that prove from the topics alone how each ingress record ended.

The modules here are the jobs and their options; each room below names what it may use.
Begin with `audit_delivery`, which is the whole journey in one function (docs/audit.md).
"""
