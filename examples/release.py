"""Limit the rate of a slow target, and end records that are too late.

Start the proxy with `make run ARGS="--config examples/proxy.yaml"`. The section `release` of this
file has the limits. The script admin-pause.sh pauses a target.
"""

import time

from client_arrivals import BOOTSTRAP, Arrivals
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_delay import DelayProducer

RECORDS = 30
TWO_HOURS_MS = 2 * 3_600_000

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
missing = {"orders-slow", "orders-alerts"} - admin.list_topics(timeout=10).topics.keys()
for made in (
    admin.create_topics([NewTopic(name, 1) for name in missing]).values() if missing else ()
):
    made.result(10)

with (
    Arrivals("orders-slow") as slow,
    Arrivals("timer.dead-letters") as letters,
    DelayProducer({"bootstrap.servers": BOOTSTRAP}) as producer,
):
    started_s = time.monotonic()
    for number in range(RECORDS):
        producer.send("orders-slow", f"slow {number}")
    arrived = list(slow.wait(RECORDS, within_s=30))
    print(f"{len(arrived)} records at 10 a second took {time.monotonic() - started_s:.1f} s")

    long_ago_ms = int(time.time() * 1000) - TWO_HOURS_MS
    producer.send("orders-alerts", "two hours late", deliver_at=long_ago_ms)
    for message in letters.messages(1, within_s=15):
        headers = dict(message.headers() or [])
        print("dead letter:", (headers["timer-error"] or b"").decode())
