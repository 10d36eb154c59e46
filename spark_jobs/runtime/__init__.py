"""Spark on this machine: its Java and jars, a session, frames and Parquet tables, errors to read.

Uses no other room. Begin with `session`.
"""
