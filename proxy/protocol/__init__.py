"""The protocol of ingress records: their requests, stored forms and outcomes.

No module does I/O. May use storage. Begin with `request_reader`; `parsed` has its results.
"""
