"""Loads beyond the capacity of the proxy or the machine. Memory and exactly-once delivery are
checked. Read `scenarios/instant` first."""
