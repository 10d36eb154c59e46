"""A target that does not exist yet: tried again until it does. Start `make run` first."""

import json
import uuid

from client_arrivals import BOOTSTRAP, Arrivals
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_delay import DelayProducer

topic = f"made-later-{uuid.uuid4().hex[:6]}"

with Arrivals("timer.outcomes") as outcomes, DelayProducer({"bootstrap.servers": BOOTSTRAP}) as p:
    p.send(topic, "worth waiting for", delay="0s").result(10)

    # Nobody has made the topic, so the record was put back to be tried again, first in 10 seconds;
    # the sixteenth time in vain it would become a dead letter. Records behind it do not wait.
    for text in outcomes.wait(1, within_s=20):
        outcome = json.loads(text)
        print("at first:", outcome["outcome"], "-", outcome["detail"])

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(topic, 1)])[topic].result(10)

with Arrivals(topic) as arrivals:
    for value in arrivals.wait(1, within_s=30):
        print("arrived:", value)
