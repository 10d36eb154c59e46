"""A consumer whose keys wait for their failed records. Start `make run` first.

Events of order 1 are handled in order although its payment fails twice. Order 2 does not wait.
"""

import signal
import uuid

from client_arrivals import BOOTSTRAP
from confluent_kafka import Producer

from kafka_delay import Received, RetryConsumer

GROUP = f"ledger-{uuid.uuid4().hex[:8]}"
STEPS = [("order 1", "placed"), ("order 1", "paid"), ("order 1", "shipped"), ("order 2", "placed")]
config = {"bootstrap.servers": BOOTSTRAP}
marked = {f"{step}, {GROUP}": step for _, step in STEPS}
left = [f"{key}: {step}" for key, step in STEPS]


def book(record: Received) -> None:
    """Handle a record. After an exception it comes again, before later records of its key."""
    step = marked.get((record.value or b"").decode())
    if step is None:
        return  # a record of another program
    if step == "paid" and record.attempt < 2:
        raise ConnectionError("the bank does not answer")
    what = f"{(record.key or b'').decode()}: {step}"
    print(f"{what}, failed {record.attempt} times before")
    if what in left:
        left.remove(what)
    if not left:
        consumer.stop()


producer = Producer(config)
for key, step in STEPS:
    producer.produce("orders", f"{step}, {GROUP}", key=key)
producer.flush(10)

consumer = RetryConsumer(
    config, GROUP, ["orders"], book, parallel=2, orderly=True, orderly_delays="1s 2s 5s"
)
signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
consumer.run()
print("done; each order in its order")
