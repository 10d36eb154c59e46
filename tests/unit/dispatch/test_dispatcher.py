"""Results for due records: delivered, requeued, rolled, or a dead letter."""

from __future__ import annotations

import pytest

from proxy.dispatch.dispatcher import Dispatcher
from proxy.dispatch.known_targets import KnownTargets, TopicRules
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import ReleaseControl
from proxy.protocol.body import Content, Delivery, IngressPartition, Purpose, packer
from proxy.protocol.outcomes import Rejection
from proxy.protocol.policy import RetryGroup
from proxy.scheduling.batch import Batch, OutgoingRecord, auxiliary_ref
from storage.store import Entry

INGRESS = IngressPartition("timer.ingress", 0)
NOW_MS = 1_000_000
RETRY = RetryGroup("", (10, 20, 40), 4)


def an_entry(
    offset: int,
    target: str = "orders",
    partition: int = -1,
    *,
    attempt: int | None = None,
    key: bytes | None = b"key",
    value: bytes = b"value",
    wanted_ms: int | None = None,
) -> Entry:
    """Return an entry that fires now. It is rewritten instead if `wanted_ms` is later."""
    headers: list[tuple[str, bytes | None]] = [("timer-topic", target.encode())]
    if attempt is not None:
        headers.append(("timer-hop-attempt", b"%d" % attempt))
    content: Content = (partition, key, value, headers)
    if wanted_ms is not None:
        purpose = Purpose(wanted_ms, offset, wanted_ms)
        return NOW_MS, offset, target, packer()((purpose, *content))
    return NOW_MS, offset, target, packer()(content)


class Bench:
    """Dispatcher of one transaction. `orders` has two partitions, `nowhere` does not exist."""

    def __init__(self) -> None:
        self.targets = KnownTargets()
        self.targets.learn("orders", 2, None)
        self.targets.learn("checks", 1, None)
        self.targets.learn("nowhere", 0, Rejection("target-unknown", "the topic does not exist"))
        self.refusals = Refusals()
        self._dispatcher = Dispatcher(self.targets, self.refusals, RETRY, ReleaseControl(), NOW_MS)

    def resolve(
        self, *entries: Entry, auxiliary: tuple[OutgoingRecord, ...] = ()
    ) -> Batch[Delivery]:
        return self._dispatcher.resolve(Batch(INGRESS, entries, (), (), auxiliary))


def test_record_for_a_topic_that_takes_it_is_delivered() -> None:
    done = Bench().resolve(an_entry(1), an_entry(2, partition=1))
    assert [delivery.offset for delivery in done.deliveries] == [1, 2]
    assert (done.hops, done.dead_letters) == ([], [])


@pytest.mark.parametrize(
    ("failed", "waits_ms"), [(None, 10), (1, 20), (2, 40)], ids=["first", "second", "third"]
)
def test_record_for_a_missing_topic_is_tried_again_at_the_retry_levels(
    failed: int | None, waits_ms: int
) -> None:
    (hop,) = Bench().resolve(an_entry(1, "nowhere", attempt=failed)).hops
    assert (hop.what, hop.not_before_ms) == ("requeued", NOW_MS + waits_ms)
    assert hop.failures == (failed or 0) + 1
    assert hop.detail.startswith("target-unknown: ")
    assert hop.detail.endswith(f"attempt {hop.failures} of 4")


@pytest.mark.parametrize("failed", [3, 4, 99])
def test_record_that_failed_as_often_as_is_allowed_is_a_dead_letter(failed: int) -> None:
    done = Bench().resolve(an_entry(1, "nowhere", attempt=failed))
    assert [letter.reason.code for letter in done.dead_letters] == ["target-unknown"]
    assert done.hops == []


def test_record_for_a_partition_that_is_not_there_is_a_dead_letter_at_once() -> None:
    done = Bench().resolve(an_entry(1, partition=2))
    assert [letter.reason.code for letter in done.dead_letters] == ["partition-bad"]


def test_record_that_fires_before_it_is_wanted_is_rolled() -> None:
    (hop,) = Bench().resolve(an_entry(1, wanted_ms=NOW_MS + 1)).hops
    assert (hop.what, hop.not_before_ms, hop.failures) == ("rolled", None, None)
    assert Bench().resolve(an_entry(1, wanted_ms=NOW_MS)).hops == []


def test_record_rolls_whatever_its_topic_is_like() -> None:
    (hop,) = Bench().resolve(an_entry(1, "nowhere", wanted_ms=NOW_MS + 1)).hops
    assert hop.what == "rolled"


@pytest.mark.parametrize(("code", "goes_on"), [("not-authorised", True), ("too-large", False)])
def test_record_that_the_broker_refused_goes_on_where_waiting_may_help(
    code: str, goes_on: bool
) -> None:
    bench = Bench()
    bench.refusals.refused[INGRESS.prefix, 1] = Rejection(code, "the broker says")
    done = bench.resolve(an_entry(1), an_entry(2))
    assert [delivery.offset for delivery in done.deliveries] == [2]
    assert (len(done.hops), len(done.dead_letters)) == ((1, 0) if goes_on else (0, 1))


def test_record_whose_successor_is_refused_too_is_a_dead_letter() -> None:
    bench = Bench()
    entry = an_entry(1, "nowhere")
    assert len(bench.resolve(entry).hops) == 1
    bench.refusals.refused[INGRESS.prefix, 1] = Rejection("too-large", "for the ingress")
    done = bench.resolve(entry)
    assert [letter.reason.code for letter in done.dead_letters] == ["too-large"]
    assert done.hops == []


def test_record_that_could_go_after_all_and_then_meets_a_passing_refusal_is_tried_again() -> None:
    bench = Bench()
    entry = an_entry(1, "nowhere")
    assert len(bench.resolve(entry).hops) == 1
    bench.targets.learn("nowhere", 1, None)
    assert len(bench.resolve(entry).deliveries) == 1
    bench.refusals.refused[INGRESS.prefix, 1] = Rejection("not-authorised", "the broker says")
    done = bench.resolve(entry)
    assert done.dead_letters == []
    assert [hop.what for hop in done.hops] == ["requeued"]
    bench.refusals.refused[INGRESS.prefix, 1] = Rejection("too-large", "for the ingress")
    assert len(bench.resolve(entry).dead_letters) == 1


def test_rules_of_a_topic_are_held_before_the_broker_has_to() -> None:
    bench = Bench()
    bench.targets.rules["orders"] = TopicRules(max_message_bytes=300, needs_key=True)
    done = bench.resolve(an_entry(1), an_entry(2, key=None), an_entry(3, value=bytes(400)))
    assert [delivery.offset for delivery in done.deliveries] == [1]
    assert [letter.reason.code for letter in done.dead_letters] == ["publish-failed", "too-large"]


def a_check_back(offset: int, topic: str) -> OutgoingRecord:
    ref = auxiliary_ref(INGRESS, topic, offset)
    return OutgoingRecord(topic, b"value", b"key", -1, [], ref)


def test_check_back_that_cannot_be_written_is_left_out() -> None:
    """The next check-back follows. The proxy's own ingress records are never left out."""
    bench = Bench()
    refused = a_check_back(3, "checks")
    bench.refusals.refused[auxiliary_ref(INGRESS, "checks", 3)] = Rejection(
        "too-large", "the broker says"
    )
    own = a_check_back(3, "timer.ingress")
    done = bench.resolve(
        auxiliary=(a_check_back(1, "checks"), a_check_back(2, "nowhere"), refused, own)
    )
    assert list(done.auxiliary) == [a_check_back(1, "checks"), own]


def test_refused_check_back_says_nothing_of_the_message_it_is_about() -> None:
    bench = Bench()
    note = a_check_back(3, "checks")
    bench.refusals.refused[auxiliary_ref(INGRESS, "checks", 3)] = Rejection(
        "too-large", "for the check topic"
    )
    done = bench.resolve(an_entry(3), auxiliary=(note,))
    assert [delivery.offset for delivery in done.deliveries] == [3]


NO_LEADER = {1: "has no leader"}
KEY_OF_0, KEY_OF_1 = b"a", b"key"


def test_records_of_a_partition_without_a_leader_are_requeued_and_no_others() -> None:
    bench = Bench()
    bench.targets.learn_unavailable("orders", NO_LEADER)
    done = bench.resolve(
        an_entry(1, partition=0),
        an_entry(2, partition=1),
        an_entry(3, key=KEY_OF_0),
        an_entry(4, key=KEY_OF_1),
    )
    assert [delivery.offset for delivery in done.deliveries] == [1, 3]
    assert [hop.delivery.offset for hop in done.hops] == [2, 4]
    assert {hop.detail for hop in done.hops} == {
        "partition-unavailable: orders/1 has no leader; publish attempt 1 of 4"
    }


def test_record_without_key_goes_where_it_can_be_written() -> None:
    bench = Bench()
    bench.targets.learn_unavailable("orders", NO_LEADER)
    done = bench.resolve(an_entry(1, key=None), an_entry(2, key=None))
    assert [delivery.partition for delivery in done.deliveries] == [0, 0]

    bench.targets.learn_unavailable("orders", {0: "has no leader", **NO_LEADER})
    assert len(bench.resolve(an_entry(3, key=None)).hops) == 1


def test_partition_that_stays_unavailable_makes_dead_letters_in_the_end() -> None:
    bench = Bench()
    bench.targets.learn_unavailable("orders", NO_LEADER)
    done = bench.resolve(an_entry(1, partition=1, attempt=3))
    assert [letter.reason.code for letter in done.dead_letters] == ["partition-unavailable"]


def test_records_are_looked_at_one_by_one_only_while_a_partition_is_unavailable() -> None:
    targets = Bench().targets
    assert targets.take_all(["orders"])
    targets.learn_unavailable("orders", NO_LEADER)
    assert not targets.take_all(["orders"])
    targets.learn_unavailable("orders", {})
    assert targets.take_all(["orders"])


def test_records_are_looked_at_one_by_one_where_sizes_or_times_were_refused() -> None:
    halved, ruled, untimely = Bench().targets, Bench().targets, Bench().targets
    halved.shrink_batches("orders", 1_000)
    ruled.rules["orders"] = TopicRules(1_000, needs_key=False)
    untimely.untimely["orders"] = Rejection("time-refused", "early")
    assert not any(targets.take_all(["orders"]) for targets in (halved, ruled, untimely))


def test_check_back_to_an_unavailable_partition_is_left_out() -> None:
    bench = Bench()
    bench.targets.learn_unavailable("checks", {0: "has no leader"})
    assert bench.resolve(auxiliary=(a_check_back(1, "checks"),)).auxiliary == []
