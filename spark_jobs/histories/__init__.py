"""Histories of ingress records, each a request with its ends; and the audits' progress.
May use `kafka` and `requests`. Begin with `reader`.
"""
