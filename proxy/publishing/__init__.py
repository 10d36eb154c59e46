"""Kafka transactions: what dispatch decides is written to the broker as a whole or not at all.

May use dispatch and what stands below it. Begin with `transaction`.
"""
