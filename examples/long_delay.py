"""Send a delay that is longer than the retention of the ingress topic.

The proxy rewrites the record in time.

Start the proxy with `make run ARGS="--config examples/proxy.yaml"`: `roll_after` is 3 s there.
"""

import json

from client_arrivals import BOOTSTRAP, Arrivals

from kafka_delay import DelayProducer

with (
    Arrivals("timer.outcomes") as outcomes,
    Arrivals("orders") as arrivals,
    DelayProducer({"bootstrap.servers": BOOTSTRAP}) as producer,
):
    receipt = producer.send("orders", "after ten seconds", key="k1", delay="10s").result(10)
    print("stored as", receipt.origin)

    # A rewritten record ends as `rolled`, and its successor is pending in its place. A cancel or a
    # replacement by id finds the successor.
    for text in outcomes.wait(3, within_s=30):
        outcome = json.loads(text)
        print(outcome["outcome"], outcome["origin"])

    for message in arrivals.messages(1, within_s=30):
        headers = dict(message.headers() or [])
        print("arrived:", (message.value() or b"").decode())
        print("first written as", (headers["timer-first-origin"] or b"").decode())
