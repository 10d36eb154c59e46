"""The running proxy: processes under one admin port, each with one session after the other.

May use every room but cli. Begin with `run`; `worker` makes a new session when one is lost.
"""
