"""The campaign that judges the audit: random runs, one planted fault in each, and what the audit
says of them. Begin with `campaign`; `operators` are the faults."""
