"""Many records in one call, each with a time of its own. Start `make run` first."""

import uuid

from client_arrivals import BOOTSTRAP, Arrivals

from kafka_delay import BatchFailed, DelayedRecord, DelayProducer

config = {
    "bootstrap.servers": BOOTSTRAP,
    # Needed for `transaction=True`. Give each process a fixed name.
    "transactional.id": f"example-{uuid.uuid4()}",
}
records = [
    DelayedRecord("orders", f"number {n}", key=str(n), delay=f"{n * 20}ms") for n in range(100)
]

with Arrivals("orders") as arrivals, DelayProducer(config) as producer:
    # One Kafka transaction: all records, or none.
    receipts = producer.send_batch(records, transaction=True)
    print("stored:", len(receipts), "records, from", receipts[0].origin)

    # A fault in one record takes back the whole batch. The error names the record.
    try:
        mistaken = DelayedRecord("orders", "mistaken", delay="soon")
        producer.send_batch([*records, mistaken], transaction=True)
    except BatchFailed as failed:
        print("refused:", failed)

    print("arrived:", len(list(arrivals.wait(101, within_s=6))), "records")
