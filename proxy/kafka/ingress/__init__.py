"""The ingress topic: fetched record after record, waited for, and looked up again one by one.

May use what `kafka` may use. Begin with `ingress`.
"""
