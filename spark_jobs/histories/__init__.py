"""The history of each ingress record: its request beside its ends; how far all was read.

May use `kafka` and `requests`. Begin with `reader`.
"""
