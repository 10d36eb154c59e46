"""Loads beyond the capacity of the proxy or the machine. The judgement covers memory and
exactly-once delivery. Begin with `scenarios/instant`."""
