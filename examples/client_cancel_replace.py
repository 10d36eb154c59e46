"""Cancel and replace pending records. Start `make run` first."""

import uuid

from client_arrivals import BOOTSTRAP, Arrivals

from kafka_delay import DelayProducer

# Choose any id that no other pending record has.
first, second = f"reminder-{uuid.uuid4()}", f"reminder-{uuid.uuid4()}"

with Arrivals("orders") as arrivals, DelayProducer({"bootstrap.servers": BOOTSTRAP}) as producer:
    producer.send("orders", "first, never to be seen", key="k1", id=first, delay="3s")
    producer.send("orders", "second, as it was", key="k1", id=second, delay="3s")

    # The receipt means that the request is stored. The topic timer.outcomes says whether it came
    # in time, under the receipt's origin: "applied" or "missed".
    print("cancel stored as", producer.cancel(first).result(10).origin)

    # A replacement is a complete record: value, key, headers and time.
    producer.replace(second, "orders", "second, replaced", key="k1", delay="4s").result(10)

    for value in arrivals.wait(2, within_s=8):
        print("arrived:", value)
