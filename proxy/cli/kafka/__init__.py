"""How commands reach Kafka: records for the ingress, and what comes back.

May use `cli.terminal`. Begin with `ingress_record`.
"""
