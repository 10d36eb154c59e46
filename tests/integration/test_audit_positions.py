"""Positions are read in an order that gives a consistent state, and refused if they are unknown."""

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewPartitions

from proxy.protocol.position import PolicyFrom as WrittenFrom
from proxy.protocol.position import Position
from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.kafka.broker import Place as Partition
from spark_jobs.kafka.snapshot import (
    LAST_OFFSET,
    Committed,
    CommittedState,
    OwnTopics,
    PolicyFrom,
    Range,
    Selection,
    committed_state,
    take_snapshot,
)
from spark_jobs.runtime.errors import (
    AuditError,
    BrokerUnreachable,
    IngressGrew,
    NothingCommitted,
    NotOurs,
    RangeRefused,
    TopicMissing,
)
from tests.support.installation.committing import commit, metadata, open_transaction, topic_id
from tests.support.quiet_clients import admin_client
from tests.support.records import Outgoing, new_topic, write

POLICY = b'{"levels_ms":[1000]}'
WAITS_S = 180
DIGEST = hashlib.sha256(POLICY).hexdigest()[:16]

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Place:
    """Topics of one test, and the group that serves them."""

    bootstrap: str
    own: OwnTopics
    group: str
    target: str
    broker: Broker

    def commits(self, *offsets: int, **more: object) -> None:
        said = metadata(
            **{"i": topic_id(self.bootstrap, self.own.ingress), "s": [(0, DIGEST)], **more}
        )
        places = [
            TopicPartition(self.own.ingress, number, offset, said)
            for number, offset in enumerate(offsets)
        ]
        commit(self.bootstrap, self.group, places)

    def committed_state(self) -> CommittedState:
        return committed_state(self.broker, self.own, self.group)


@pytest.fixture
def place(kafka: str) -> Place:
    own = OwnTopics(
        new_topic(kafka, "ingress", 2),
        new_topic(kafka, "dead-letters"),
        new_topic(kafka, "outcomes"),
        new_topic(kafka, "settings"),
    )
    write(kafka, own.settings, [Outgoing(DIGEST.encode(), POLICY), Outgoing(b"served/x", b"{}")])
    write(kafka, own.ingress, [Outgoing(value=b"%d" % n, partition=0) for n in range(5)])
    broker = Broker(kafka_settings(kafka))
    return Place(kafka, own, f"group-{uuid.uuid4().hex[:8]}", new_topic(kafka, "target"), broker)


def test_snapshot_tells_what_is_committed_and_what_the_topics_hold(place: Place) -> None:
    place.commits(3, t=1000, c=2)
    write(place.bootstrap, place.target, [Outgoing(), Outgoing()])

    state = place.committed_state()
    taken = take_snapshot(place.broker, state, [place.target])

    first, second = taken.ingress
    assert (first.next_offset, first.committed.watermark_ms, first.committed.cursor) == (3, 1000, 2)
    assert (first.start, first.end, first.audited_from, first.audited_to) == (0, 5, 0, 5)
    assert first.committed.policies == (PolicyFrom(0, DIGEST),)
    assert (second.next_offset, second.committed.next_offset) == (0, None)
    assert state.ranges == [Range(place.own.ingress, 0, 0, 3), Range(place.own.ingress, 1, 0, 0)]
    assert state.policies == {DIGEST: POLICY.decode()}
    assert Range(place.target, 0, 0, 2) in taken.end_ranges
    assert {one.range.topic for one in taken.ends} == {
        place.target,
        place.own.dead_letters,
        place.own.outcomes,
    }
    assert taken.partitions[place.own.ingress] == 2


def test_policies_that_the_metadata_has_forgotten_are_known_from_the_settings_topic(
    place: Place,
) -> None:
    earlier = b'{"levels_ms":[7]}'
    digest = hashlib.sha256(earlier).hexdigest()[:16]
    said = {
        "topic_id": topic_id(place.bootstrap, place.own.ingress),
        "policies": [(0, digest), (2, "of a commit that never was")],
    }
    mark = f"served/{place.group}/{place.own.ingress}/0".encode()
    marks = [Outgoing(mark, json.dumps(said).encode()), Outgoing(mark + b"0", b"{")]
    write(place.bootstrap, place.own.settings, [Outgoing(digest.encode(), earlier), *marks])
    place.commits(3, s=[(2, DIGEST)])
    assert place.committed_state().committed[0].policies == (
        PolicyFrom(0, digest),
        PolicyFrom(2, DIGEST),
    )


def test_cursor_that_is_null_means_that_nothing_at_the_watermark_is_left(place: Place) -> None:
    place.commits(1, t=5, c=None)
    assert place.committed_state().committed[0].cursor == LAST_OFFSET


@pytest.mark.parametrize("is_target", [True, False], ids=["target", "ingress"])
def test_open_transaction_is_waited_for(place: Place, is_target: bool) -> None:
    place.commits(1)
    topic = place.target if is_target else place.own.ingress
    producer = open_transaction(place.bootstrap)
    producer.produce(topic, b"late", partition=0)
    producer.flush()
    state = place.committed_state()
    is_asked = threading.Event()

    def end() -> None:
        is_asked.set()
        producer.commit_transaction()

    committing = threading.Timer(0.7, end)
    committing.start()

    taken = take_snapshot(place.broker, state, [place.target], wait_s=WAITS_S)

    assert is_asked.is_set(), "it was not waited for"
    committing.join()
    if is_target:
        assert Range(topic, 0, 0, 2) in taken.end_ranges
    else:
        assert Range(topic, 0, 0, 7) in taken.ingress_ranges


def test_partition_with_a_transaction_that_stays_open_is_read_up_to_there(place: Place) -> None:
    place.commits(1)
    write(place.bootstrap, place.target, [Outgoing()])
    producer = open_transaction(place.bootstrap)
    producer.produce(place.target, b"never", partition=0)
    producer.produce(place.own.ingress, b"never", partition=0)
    producer.flush()

    state = place.committed_state()
    taken = take_snapshot(place.broker, state, [place.target], wait_s=0.3)
    producer.abort_transaction()

    (target,) = [one for one in taken.ends if one.range.topic == place.target]
    assert (target.range, target.is_open) == (Range(place.target, 0, 0, 1), True)
    assert not any(one.is_open for one in taken.ends if one is not target)
    first, second = taken.ingress
    assert (first.end, first.log_end) == (5, 6)
    assert (second.end, second.log_end) == (0, 0)


def test_compacted_topics_are_known_and_each_topic_has_its_id(place: Place) -> None:
    place.commits(1)
    compacted = new_topic(place.bootstrap, "compacted", 1, {"cleanup.policy": "compact"})
    targets = [place.target, compacted]
    taken = take_snapshot(place.broker, place.committed_state(), targets)
    assert {one.range.topic for one in taken.ends if one.is_compacted} == {compacted}
    assert len({*taken.topic_ids.values()}) == 4


def test_log_that_has_lost_its_beginning_tells_when_the_rest_began_by_the_brokers_time(
    place: Place,
) -> None:
    place.commits(4)
    config = {"message.timestamp.type": "LogAppendTime"}
    stamped = new_topic(place.bootstrap, "stamped", 1, config)
    targets = [place.target, stamped]
    for topic in targets:
        write(place.bootstrap, topic, [Outgoing(), Outgoing()])
    admin = admin_client(place.bootstrap)
    cut = [TopicPartition(topic, 0, 1) for topic in targets]
    for wait in admin.delete_records([*cut, TopicPartition(place.own.ingress, 0, 2)]).values():
        wait.result(WAITS_S)

    taken = take_snapshot(place.broker, place.committed_state(), targets)

    found = {one.range: one.first_ms for one in taken.ends if one.range.topic in targets}
    assert found.keys() == {Range(topic, 0, 1, 2) for topic in targets}
    assert found[Range(place.target, 0, 1, 2)] is None
    assert abs((found[Range(stamped, 0, 1, 2)] or 0) - taken.taken_at_ms) < 60_000
    assert (taken.ingress[0].start, taken.ingress[0].audited_from) == (2, 2)


def test_times_become_offsets_and_a_range_that_cannot_hold_a_record_is_refused(
    place: Place,
) -> None:
    place.commits(5)
    time.sleep(0.01)
    between_ms = time.time_ns() // 1_000_000
    write(place.bootstrap, place.own.ingress, [Outgoing(partition=0)])
    state = place.committed_state()

    late = take_snapshot(place.broker, state, [], Selection(since_ms=between_ms)).ingress[0]
    early = take_snapshot(place.broker, state, [], Selection(until_ms=between_ms)).ingress[0]

    assert (late.audited_from, late.audited_to) == (5, 6)
    assert (early.audited_from, early.audited_to) == (0, 5)
    with pytest.raises(RangeRefused, match="--since and --until"):
        take_snapshot(place.broker, state, [], Selection(until_ms=1000))
    with pytest.raises(RangeRefused, match="--since and --until"):
        take_snapshot(place.broker, state, [], Selection(since_ms=between_ms + 3_600_000))


def test_of_offsets_asked_for_those_in_the_log_are_audited_and_others_refused(
    place: Place,
) -> None:
    place.commits(5)
    state = place.committed_state()

    def audited(first: int, beyond: int, partition: int = 0) -> tuple[int, int]:
        span = {partition: (first, beyond)}
        one = take_snapshot(place.broker, state, [], Selection(offsets=span)).ingress[0]
        return one.audited_from, one.audited_to

    assert audited(2, 4) == (2, 4)
    assert audited(3, 99) == (3, 5)
    with pytest.raises(RangeRefused, match=r"holds the offsets 0 to 4: .* Correct --offsets"):
        audited(5, 99)
    with pytest.raises(RangeRefused, match="partition 7, holds nothing"):
        audited(0, 1, partition=7)


def test_nothing_written_since_a_moment_in_the_past_is_an_empty_range(place: Place) -> None:
    place.commits(5)
    time.sleep(0.01)
    quiet = take_snapshot(
        place.broker, place.committed_state(), [], Selection(since_ms=time.time_ns() // 1_000_000)
    ).ingress[0]
    assert (quiet.audited_from, quiet.audited_to) == (5, 5)


@pytest.mark.parametrize(
    "written",
    [
        Position.start(7, DIGEST, "id-1"),
        Position(9, 1000, 8, 3, (WrittenFrom(0, "old"), WrittenFrom(5, DIGEST)), "id-2"),
    ],
)
def test_what_the_proxy_writes_is_read_as_it_was_meant(written: Position) -> None:
    read = Committed.from_metadata(2, written.next_offset, written.to_metadata())
    assert read == Committed(
        2,
        written.next_offset,
        written.watermark_ms,
        written.cursor,
        written.floor,
        tuple(PolicyFrom(*policy) for policy in written.policies),
        written.topic_id,
    )


class GrowingBroker(Broker):
    """Broker that once gets a new partition for `topic` while the end offsets are read."""

    topic = ""

    def stable_ends(self, places: Sequence[Partition]) -> dict[Partition, int]:
        if self.topic:
            topic, self.topic = self.topic, ""
            count = self.topics()[topic] + 1
            self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(WAITS_S)
            while self.topics()[topic] < count:
                time.sleep(0.1)
        return super().stable_ends(places)


@pytest.fixture
def growing(place: Place) -> GrowingBroker:
    broker = GrowingBroker(kafka_settings(place.bootstrap))
    broker.topic = place.own.ingress
    return broker


def test_ends_of_partitions_that_were_not_asked_for_are_not_judged(
    place: Place, growing: GrowingBroker
) -> None:
    """A record written to a new partition and delivered during the read has no request here."""
    place.commits(3)
    state = place.committed_state()
    with pytest.raises(IngressGrew, match="has 3 partitions, and had 2"):
        take_snapshot(growing, state, [place.target])
    taken = take_snapshot(growing, place.committed_state(), [place.target])
    assert [one.partition for one in taken.ingress] == [0, 1, 2]


def test_group_that_never_committed_is_refused(place: Place) -> None:
    with pytest.raises(NothingCommitted, match=place.group):
        place.committed_state()


def test_metadata_that_does_not_fit_is_refused(place: Place) -> None:
    for more, says in (
        ({"v": 99}, "version 99 is not among"),
        ({"t": "soon"}, "no whole number"),
        ({"s": None}, "TypeError"),
        ({"i": "another"}, "deleted and created anew"),
        ({"s": [(0, "0123456789abcdef")]}, "0123456789abcdef, which the topic"),
    ):
        place.commits(1, **more)
        with pytest.raises(NotOurs, match=says):
            place.committed_state()


def test_committed_offset_beyond_the_log_is_refused(place: Place) -> None:
    place.commits(6)
    with pytest.raises(NotOurs, match="beyond the end 5"):
        place.committed_state()


def test_topic_that_does_not_exist_is_named(place: Place) -> None:
    for role in ("ingress", "dead_letters", "outcomes", "settings"):
        own = replace(place.own, **{role: f"{role}-nowhere"})
        with pytest.raises(TopicMissing, match=f"{role}-nowhere"):
            committed_state(place.broker, own, place.group)


def test_target_pattern_that_matches_nothing_is_named(place: Place) -> None:
    assert place.broker.matching([place.target[:-1] + "*"]) == [place.target]
    with pytest.raises(TopicMissing, match="no-such-"):
        place.broker.matching(["no-such-*"])


def test_broker_that_does_not_answer_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_jobs.kafka.broker.ASK_TIMEOUT_S", 5.0)
    with pytest.raises(BrokerUnreachable, match=r"127.0.0.1:9: .*Connect.*refused.*--bootstrap"):
        Broker(kafka_settings("127.0.0.1:9")).topics()


def test_setting_that_the_client_does_not_know_is_refused() -> None:
    with pytest.raises(AuditError, match="no.such.setting"):
        Broker(kafka_settings("127.0.0.1:9", ["no.such.setting=1"]))
