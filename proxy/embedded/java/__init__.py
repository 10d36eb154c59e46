"""The Java runtime and Kafka's jars: found, fetched and checked.

May use errors and extras alone. Begin with `jar_cache`.
"""
