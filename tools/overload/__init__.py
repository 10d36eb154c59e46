"""Loads beyond what the proxy or the machine can take: what they do to memory, and that each record
is delivered exactly once all the same. Begin with `scenarios/instant`.
"""
