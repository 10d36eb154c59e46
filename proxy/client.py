"""The former module of the client, which is now a separate distribution."""

raise ImportError(
    "the client is a separate distribution. Run `pip install kafka-delay-client`, and replace "
    "`from proxy.client import ...` by `from kafka_delay import ...`"
)
