"""Spark on this machine: Java and jars, a session, frames and tables, readable errors.
Uses nothing of the other rooms. Begin with `session`.
"""
