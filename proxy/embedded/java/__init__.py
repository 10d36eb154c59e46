"""The Java runtime and Kafka's jars: found, fetched, checked, and run as a child process.

May use errors and extras alone. Begin with `jar_cache`.
"""
