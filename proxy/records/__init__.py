"""Shapes of what goes in and out: headers, bodies, deliveries, outcomes, a shard's position.

May use storage. Begin with `message`, then `delivery`: what an ingress record becomes.
"""
