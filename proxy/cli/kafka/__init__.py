"""How commands reach Kafka: clients, records for the ingress, and what comes back.

May use `cli.terminal`. Begin with `ingress_record`; `connection` explains what brokers refuse.
"""
