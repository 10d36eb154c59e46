"""The old place of the client, now a distribution of its own."""

raise ImportError(
    "the client is a separate distribution. Run `pip install kafka-delay-client`, and replace "
    "`from proxy.client import ...` by `from kafka_delay import ...`"
)
