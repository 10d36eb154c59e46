"""Use the headers of other schedulers, which the proxy understands (docs/aliases.md).

Start the proxy with `make run ARGS="--config examples/proxy.yaml"`: aliases are opt-in.
"""

import time

from client_arrivals import BOOTSTRAP, Arrivals
from confluent_kafka import Producer

in_two_seconds = int(time.time()) + 2
requests: dict[str, dict[str, str | bytes | None]] = {
    "as for cesium": {"timer-topic": "orders", "cesium-delay-ms": "2000"},
    "as for etf1": {
        "scheduler-epoch": str(in_two_seconds),
        "scheduler-target-topic": "orders",
        "scheduler-target-key": "k1",
    },
    "as for RabbitMQ": {"timer-topic": "orders", "x-delay": "2000"},
}

with Arrivals("orders") as arrivals:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for value, headers in requests.items():
        producer.produce("timer.ingress", value, "k1", headers=list(headers.items()))
    producer.flush(10)

    for value in arrivals.wait(3, within_s=15):
        print("arrived:", value)
