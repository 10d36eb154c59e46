"""Dead letters as values: read, selected, edited, judged and counted. Pure.

May use publishing's hops, requests and records. Begin with `letter`; `prospects` says where one
would go.
"""
