"""Send a record that arrives in the topic `orders` ten seconds from now."""

import sys

from confluent_kafka import Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
producer = Producer({"bootstrap.servers": bootstrap})
producer.produce(
    "timer.ingress",
    key="k1",
    value="hello from Python",
    headers={"timer-topic": "orders", "timer-delay": "10s"},
)
unsent = producer.flush(10)
sys.exit(f"no broker answered at {bootstrap}" if unsent else None)
