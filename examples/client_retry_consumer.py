"""A consumer whose failed records come again by themselves. Start `make run` first.

The first retry comes after 10 s, the next ones after 30 s, 1 m, 2 m and so on. If the 16th retry
fails, too, the record goes to the topic dlq.<group>.
"""

import signal
import uuid

from client_arrivals import BOOTSTRAP
from confluent_kafka import Producer

from kafka_delay import DeadLetter, Received, RetryConsumer

GROUP = f"billing-{uuid.uuid4().hex[:8]}"
config = {"bootstrap.servers": BOOTSTRAP}
expected = {"fine": 0, "fails at first": 1, "hopeless": 0}


def bill(record: Received) -> None:
    """Handle a record. After an exception the record comes again later."""
    value = (record.value or b"").decode()
    if value not in expected:
        return  # a record of another program
    print(f"{record.original}: {value!r}, failed {record.attempt} times before")
    if record.attempt == expected[value]:
        del expected[value]
    if not expected:
        consumer.stop()
    if value == "hopeless":
        raise DeadLetter("no such customer")
    if record.attempt == 0 and value != "fine":
        raise ConnectionError("the bank does not answer")


producer = Producer(config)
for text in expected:
    producer.produce("orders", text, key="k1")
producer.flush(10)

# Each failure is retried at least once, even if this program is killed.
consumer = RetryConsumer(config, GROUP, ["orders"], bill)
signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
consumer.run()
print(f"done; the hopeless one is in dlq.{GROUP}")
