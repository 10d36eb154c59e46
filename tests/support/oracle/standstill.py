"""Reasons for pending records: open transactions or missing records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from proxy.kafka.log_ranges import answered_offset
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.oracle.ends import Topics, origin_of
from tests.support.quiet_clients import admin_client

ASK_TIMEOUT_S = 180
SHOWN = 5


def what_stands_still(topics: Topics) -> Iterator[str]:
    names = [topics.ingress, topics.outcomes, topics.dead_letters, *topics.targets]
    yield from held_back(topics.bootstrap, [*names, "__consumer_offsets"])
    missing = _without_an_end(topics)
    counts = Counter(origin.rpartition("/")[0] for origin in missing)
    first = ", ".join(islice(missing, SHOWN))
    yield f"without an end: {dict(counts)}, first {first or 'none'}"


def _without_an_end(topics: Topics) -> dict[str, None]:
    with CommittedReader(topics.bootstrap) as reader:
        missing = dict.fromkeys(
            placed.place for placed in reader.read([topics.ingress], awaits_open=False)
        )
        for placed in reader.read(topics.targets, awaits_open=False):
            missing.pop(origin_of(placed.record), None)
        for placed in reader.read([topics.outcomes], awaits_open=False):
            missing.pop((placed.record.key or b"").decode(), None)
    return missing


def held_back(bootstrap: str, topics: Sequence[str]) -> Iterator[str]:
    places, admin = _places(bootstrap, topics), admin_client(bootstrap)
    ends = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED)
    stable = _ends(admin, places, IsolationLevel.READ_COMMITTED)
    for place in places:
        if stable[place] < ends[place]:
            open_from = f"a transaction is open from {stable[place]} of {ends[place]}"
            yield f"{place.topic}/{place.partition}: {open_from}"


def log_ends(bootstrap: str, topic: str) -> list[int]:
    places = _places(bootstrap, [topic])
    return [*_ends(admin_client(bootstrap), places, IsolationLevel.READ_UNCOMMITTED).values()]


def _places(bootstrap: str, topics: Sequence[str]) -> list[TopicPartition]:
    known = admin_client(bootstrap).list_topics(timeout=ASK_TIMEOUT_S).topics
    return [
        TopicPartition(topic, number)
        for topic in topics
        if topic in known
        for number in known[topic].partitions
    ]


def _ends(
    admin: AdminClient, places: Sequence[TopicPartition], level: IsolationLevel
) -> dict[TopicPartition, int]:
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = dict.fromkeys(places, latest)
    asked = admin.list_offsets(wanted, isolation_level=level, request_timeout=ASK_TIMEOUT_S)
    return {place: answered_offset(future) for place, future in asked.items()}
