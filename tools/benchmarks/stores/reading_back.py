"""Cost of reading bodies back from the ingress with `bodies: kafka`. `python -m
tools.benchmarks.stores.reading_back [records]` uses one partition of an embedded broker. All
records are overdue, so the rate is the maximum. A store of the kind `wheel` has the stubs. Each
line of the output is for one order of due times and one body size."""

import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer

from proxy.config.settings import Settings
from proxy.embedded import EmbeddedBroker
from proxy.kafka.client_settings import lookup_config
from proxy.kafka.reader import IngressLookup
from proxy.protocol.policy import Policy
from proxy.protocol.position import NEVER_MS
from proxy.protocol.request_reader import ReadersByOffset, RequestReader
from proxy.recovery.local_state import FetchedBodies
from storage.store import Store
from tools.benchmarks import clients, topics
from tools.benchmarks.processes import Job
from tools.benchmarks.stores.entries import Wanted, batches
from tools.benchmarks.stores.phases import Order, fill
from tools.benchmarks.stores.scenarios import DENSE, FIXED, LARGE, MIDDLE, SMALL
from tools.benchmarks.stores.shard import PEEK_ENTRIES

RECORDS = 200_000
MOST_BYTES = 1 << 28
LOOKS_S = 10.0
PATIENCE_S = 300
DELAYS_MS = {"random dues": DENSE.delay_ms, "18 fixed delays": FIXED.delay_ms}


def write(announce: object, servers: str, topic: str, wanted: Wanted) -> None:
    client = clients.producer(servers)
    for batch in batches(wanted):
        for due_ms, _offset, target, body in batch:
            headers: clients.Headers = [
                ("timer-topic", target),
                ("timer-deliver-at", b"%d" % due_ms),
            ]
            client.produce(topic, body, None, 0, headers=headers)
        clients.wait_for_room(client)
    clients.finish(client)


def rate(store: Store, records: int) -> float:
    began_s, ended, is_all = time.monotonic(), 0, False
    while not is_all and (time.monotonic() - began_s < LOOKS_S or not ended):
        found, is_all = store.due(NEVER_MS, PEEK_ENTRIES)
        assert found or is_all
        ended += len(found)
        if found:
            store.advance(*found[-1][:2])
    assert not is_all or ended == records
    return ended / (time.monotonic() - began_s)


def measure(servers: str, folder: Path, wanted: Wanted) -> float:
    topics.create(servers, folder.name, partitions=1)
    with Job(write, servers, folder.name, wanted) as writing:
        writing.result(PATIENCE_S)
    stubs = replace(wanted, has_stubs=True)
    order = Order("wheel", folder, stubs, step_ms=1, drained=wanted.records, cancelled=0)
    with Job(fill, order) as filling:
        filling.result(PATIENCE_S)
    config = lookup_config(Settings(kafka={"bootstrap.servers": servers}))
    readers = ReadersByOffset([(0, RequestReader(Policy()))])
    with (
        closing(IngressLookup(lambda: Consumer(config), folder.name, lambda: None)) as lookup,
        closing(order.shard(wanted.records)) as shard,
    ):
        read_back = partial(lookup.read, 0)
        store = FetchedBodies(shard.store, read_back, readers.read, stores_stubs=True)
        return rate(store, wanted.records)


def main(most_records: int) -> None:
    with TemporaryDirectory() as home, EmbeddedBroker(data_dir=Path(home) / "k", port=0) as broker:
        for name, delay_ms in DELAYS_MS.items():
            for body_bytes in (SMALL, MIDDLE, LARGE):
                records = min(most_records, MOST_BYTES // body_bytes)
                wanted = Wanted(records, body_bytes, delay_ms, targets=4, has_stubs=False)
                folder = Path(home) / f"{len(name)}-{body_bytes}"
                found = measure(broker.bootstrap_servers, folder, wanted)
                print(f"{name}, {records:,} of {body_bytes:,} B: {found:,.0f}/s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS)
