"""Cancel and replace by id on a real broker: effective at once, and never by half."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules
from tests.support.records import Headers, Outgoing

pytestmark = [pytest.mark.integration, pytest.mark.core]

MANY = 10_000
MANY_WITHIN_S = 180
RACES = 400
FAR = "365d"
ROLL_AFTER_MS = 400
LONGEST_ID = "x" * 256


def _ask_in_one_batch(story: Story, orders: str, bills: str) -> None:
    for delay in ("1m", "6h", "30d", FAR):
        story.tell(f"cancelled {delay}", topic=orders, delay=delay, id=delay)
        story.tell(f"cancel {delay}", cancel=delay)
    story.tell("before", cancel="early")
    story.tell("after", topic=orders, id="early", delay="10")
    story.tell("first", topic=orders, id="twice", delay=FAR)
    story.tell("cancel twice", cancel="twice")
    story.tell("cancel twice", cancel="twice")
    story.tell("old", topic=orders, id="again", delay=FAR)
    story.tell("old", topic=orders, id="again", delay="0")
    story.tell("new", topic=bills, id="again", delay="20")
    story.tell("here", topic=orders, id="place", delay="20")
    story.ask("there", {"cancel": "place"}, partition=1)
    story.tell("unlike", topic=orders, id="Place", delay="20")
    story.tell("longest", topic=orders, id=LONGEST_ID, delay=FAR)
    story.tell("cancel longest", cancel=LONGEST_ID)
    story.tell("binary", topic=orders, id=b"\xff\x00", delay=FAR)
    story.tell("cancel binary", cancel=b"\xff\x00")
    story.tell("kept", topic=orders, id="kept", delay=FAR)
    story.tell("junk", topic="no topic!", delay="soon", id=b"", cancel="kept", dely="1", level="x")


def _ask_after_delivery(story: Story, orders: str) -> None:
    story.tell("gone", topic=orders, id="gone", delay="0")
    story.send()
    story.installation.await_ends(1)
    story.tell("cancel gone", cancel="gone")
    story.tell("anew", topic=orders, id="gone", delay="10")


def _ask_across_restarts(story: Story, orders: str, bills: str) -> None:
    for name in ("killed", "lost"):
        story.tell(f"{name} cancelled", topic=orders, id=f"{name} c", delay="10m")
        story.tell(f"{name} replaced", topic=orders, id=f"{name} r", delay="10m")
    story.tell("rolled on", topic=orders, id="rolled", delay=FAR)
    story.send()
    story.installation.await_ingested()
    for name in ("killed", "lost"):
        story.proxy.kill()
        if name == "lost":
            shutil.rmtree(story.proxy.data_dir)
        story.tell(f"{name} cancel", cancel=f"{name} c")
        story.tell(f"{name} newer", topic=bills, id=f"{name} r", delay="0")
        story.send()
        story.proxy.start_ready()
    story.tell("cancel rolled", cancel="rolled")
    story.send()


@pytest.fixture(scope="module")
def story(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    installation = Installation(kafka, tmp_path_factory.mktemp("cancels"))
    told = Story(installation, Rules(), roll_after=f"{ROLL_AFTER_MS}ms")
    orders, bills = installation.target(), installation.target("bills")
    try:
        told.proxy.start_ready()
        _ask_after_delivery(told, orders)
        _ask_in_one_batch(told, orders, bills)
        _ask_across_restarts(told, orders, bills)
        told.end()
        yield told
    finally:
        installation.close()


@pytest.mark.parametrize("delay", ["1m", "6h", "30d", FAR])
def test_cancel_takes_no_time_whatever_the_due(story: Story, delay: str) -> None:
    assert story.said(f"cancelled {delay}") == ["cancelled"]
    assert story.said(f"cancel {delay}") == ["applied"]


def test_cancel_before_its_record_misses_and_the_record_arrives(story: Story) -> None:
    assert (story.said("before"), story.said("after")) == (["missed"], ["delivered"])
    assert story.details("before") == ["no record with this id is pending"]


def test_second_cancel_of_a_record_misses(story: Story) -> None:
    assert story.said("first") == ["cancelled"]
    assert story.said("cancel twice") == ["applied", "missed"]


def test_cancel_after_delivery_misses_and_the_id_may_be_used_again(story: Story) -> None:
    assert story.said("gone") == ["delivered"]
    assert story.said("cancel gone") == ["missed"]
    assert story.said("anew") == ["delivered"]


def test_newest_of_a_batch_replaces_the_others_wherever_it_goes(story: Story) -> None:
    assert story.said("old") == ["replaced", "replaced"]
    assert story.said("new") == ["delivered"]
    assert ".bills-" in story.topics("new")[0]


def test_id_means_something_in_its_partition_only_and_to_the_byte(story: Story) -> None:
    assert (story.said("here"), story.said("there")) == (["delivered"], ["missed"])
    assert story.said("unlike") == ["delivered"]


@pytest.mark.parametrize("name", ["longest", "binary"])
def test_ids_of_any_bytes_and_length_up_to_the_limit_serve(story: Story, name: str) -> None:
    assert story.said(name) == ["cancelled"]
    assert story.said(f"cancel {name}") == ["applied"]


def test_rest_of_a_cancel_is_ignored_whatever_it_says(story: Story) -> None:
    assert (story.said("kept"), story.said("junk")) == (["cancelled"], ["applied"])


@pytest.mark.parametrize("how", ["killed", "lost"])
def test_cancel_and_replacement_written_while_the_proxy_was_dead_count(
    story: Story, how: str
) -> None:
    assert story.said(f"{how} cancelled")[-1] == "cancelled"
    assert story.said(f"{how} cancel") == ["applied"]
    assert story.said(f"{how} replaced")[-1] == "replaced"
    assert story.said(f"{how} newer") == ["delivered"]
    assert ".bills-" in story.topics(f"{how} newer")[0]


def test_cancel_finds_a_record_that_has_been_rolled(story: Story) -> None:
    said = story.said("rolled on")
    assert said[-1] == "cancelled"
    assert set(said[:-1]) == {"rolled"}
    assert story.said("cancel rolled") == ["applied"]


def _asking(topic: str, delay_ms: int, ident: bytes) -> Headers:
    return [
        ("timer-topic", topic.encode()),
        ("timer-delay", b"%d" % delay_ms),
        ("timer-id", ident),
    ]


def test_many_ids_are_cancelled_at_once_a_year_before_they_are_due(
    installation: Installation,
) -> None:
    """The proxy restarts in between and must find them on disk."""
    topic, proxy = installation.target(), installation.proxy()
    proxy.start_ready()
    ids = [b"order-%d" % number for number in range(MANY)]
    year_ms = 365 * 86_400_000
    installation.send(Outgoing(ident, b"v", _asking(topic, year_ms, ident)) for ident in ids)
    installation.await_ingested()
    assert proxy.stop() == 0
    proxy.start_ready()
    started = time.monotonic()
    installation.send(Outgoing(ident, None, [("timer-cancel", ident)]) for ident in ids)
    installation.await_ends(2 * MANY)
    assert time.monotonic() - started < MANY_WITHIN_S
    assert installation.judge().counts == {"cancelled": MANY, "applied": MANY}


def test_records_that_race_with_their_cancel_or_successor_end_in_one_way(
    installation: Installation,
) -> None:
    topic, proxy, draw = installation.target(), installation.proxy(), random.Random(4)
    proxy.start_ready()
    timed: list[tuple[int, Outgoing]] = []
    begin_ms = time.time_ns() // 1_000_000 + 200
    for number in range(RACES):
        ident, at_ms, delay_ms = b"race-%d" % number, begin_ms + 2 * number, draw.randrange(40)
        new: Headers = [("timer-cancel", ident)] if number % 2 else _asking(topic, 0, ident)
        timed.append((at_ms, Outgoing(ident, b"old", _asking(topic, delay_ms, ident))))
        timed.append((at_ms + draw.randrange(60), Outgoing(ident, b"new", new)))
    with installation.writer() as writer:
        writer.write_at(timed)
    ends = installation.judge()
    assert {"cancelled", "replaced", "applied"} <= set(ends.counts)  # either may win
