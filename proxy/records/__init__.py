"""Shapes of what goes in and out: headers, bodies, rejections, a shard's position.

May use storage. Begin with `message`, then `body`: what storage keeps of an ingress record.
"""
