"""The old place of the client, now a distribution of its own."""

raise ImportError(
    "the client is a distribution of its own: pip install kafka-delay-client, then write "
    "`from kafka_delay import ...` in place of `from proxy.client import ...`"
)
