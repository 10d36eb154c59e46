"""Spark on this machine: its Java and jars, a session, frames and Parquet tables, errors to read.

Uses nothing of the other rooms. Begin with `session`.
"""
