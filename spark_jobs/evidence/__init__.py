"""What an audit judges by: each ingress record beside its ends, and how far all was read.

May use `kafka`, `requests` and what these use. Begin with `inputs`.
"""
