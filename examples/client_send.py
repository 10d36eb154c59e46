"""Send records for later: a delay, a time, or a delay level. Start `make run` first."""

from datetime import UTC, datetime, timedelta

from client_arrivals import BOOTSTRAP, Arrivals

from kafka_delay import DelayProducer

with Arrivals("orders") as arrivals, DelayProducer({"bootstrap.servers": BOOTSTRAP}) as producer:
    # A delay: a timedelta, milliseconds, or text ("500ms", "30s", "2h", "PT30S").
    producer.send("orders", "in two seconds", key="k1", delay=timedelta(seconds=2))
    # A point in time: an aware datetime, epoch milliseconds, or RFC 3339 text.
    moment = datetime.now(UTC) + timedelta(seconds=3)
    producer.send("orders", "at its time", key="k1", deliver_at=moment, headers={"trace": "7"})
    # A delay level of the proxy's settings. Level 1 is one second.
    future = producer.send("orders", "at level 1", key="k1", level=1)

    # `send` does not wait. Its future returns the receipt once the broker has stored the record.
    print("stored as", future.result(10).origin)
    for value in arrivals.wait(3, within_s=15):
        print(datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3], value)
