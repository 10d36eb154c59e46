"""Send to a topic that does not exist yet. The proxy tries again. Start `make run` first."""

import json
import uuid

from client_arrivals import BOOTSTRAP, Arrivals
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_delay import DelayProducer

topic = f"made-later-{uuid.uuid4().hex[:6]}"

with Arrivals("timer.outcomes") as outcomes, DelayProducer({"bootstrap.servers": BOOTSTRAP}) as p:
    p.send(topic, "worth waiting for", delay="0s").result(10)

    # The topic does not exist, so the proxy tries again, first after 10 seconds. After 16 publish
    # attempts the record would become a dead letter. Other records do not wait.
    for text in outcomes.wait(1, within_s=20):
        outcome = json.loads(text)
        print("at first:", outcome["outcome"], "-", outcome["detail"])

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(topic, 1)])[topic].result(10)

with Arrivals(topic) as arrivals:
    for value in arrivals.wait(1, within_s=30):
        print("arrived:", value)
