"""Bare Spark read that the audit is compared with. It reads the same topics, hashes each record
once and sorts once by partition and offset. `python -m tools.benchmarks.audit_scale.yardstick
BOOTSTRAP NAME DRIVER_MEMORY` prints the seconds as JSON. They do not include the start of the
process and of the Spark session."""

import json
import sys
import time

from pyspark.sql import functions as f

from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.kafka.snapshot import Range
from spark_jobs.kafka.sources import records
from spark_jobs.runtime.session import spark_session
from tools.benchmarks.audit_scale.topics import Topics


def read(bootstrap: str, topics: Topics, driver_memory: str) -> float:
    spark = spark_session("yardstick", driver_memory=driver_memory)
    began_s = time.monotonic()
    settings = kafka_settings(bootstrap, ())
    found = records(spark, settings, _ranges(Broker(settings), topics))
    hashed = found.select(
        "partition", "offset", f.xxhash64("key", "value", "headers").alias("hash")
    )
    place = ["partition", "offset"]
    ordered = hashed.repartition(*place).sortWithinPartitions(*place)
    ordered.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began_s


def _ranges(broker: Broker, topics: Topics) -> list[Range]:
    counts = broker.topics()
    names = (topics.ingress, topics.dead_letters, topics.outcomes, *topics.targets)
    places = [(name, number) for name in names for number in range(counts[name])]
    ends = broker.high_watermarks(places)
    return [Range(*place, 0, end) for place, end in ends.items()]


if __name__ == "__main__":
    print(json.dumps({"read_s": read(sys.argv[1], Topics(sys.argv[2]), sys.argv[3])}))
