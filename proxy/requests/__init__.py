"""What ingress records ask for: a pure function of the record and of the policy in force.

May use records. Begin with `request_reader`, which reads records; `parsed` has what they ask for.
"""
