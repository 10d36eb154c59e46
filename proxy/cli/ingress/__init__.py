"""How commands reach Kafka: clients, records for the ingress, and the answers to them.

May use `cli.terminal`. Begin with `ingress_record`; `connection` explains what brokers refuse.
"""
