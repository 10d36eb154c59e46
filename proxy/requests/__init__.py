"""What an ingress record asks for: a pure function of the record and of the policy in force.

May use records. Begin with `request_reader`, which reads one record; `parsed` has the results.
"""
