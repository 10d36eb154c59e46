"""The place where the client was before it became a distribution of its own."""

raise ImportError(
    "the client is a distribution of its own: pip install kafka-delay-client, then write "
    "`from kafka_delay import ...` in place of `from proxy.client import ...`"
)
