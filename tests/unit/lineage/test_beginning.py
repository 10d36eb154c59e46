"""The ingress record of a place, and places without a story."""

from __future__ import annotations

import pytest

from proxy.dead_letters.letter import Origin
from proxy.lineage.tracer import NoSuchRecord, find_beginning, refuse_unrecorded
from tests.unit.lineage.traced_topics import NAMES, START_MS, TracedSite


@pytest.fixture
def site() -> TracedSite:
    return TracedSite()


def test_record_of_which_nothing_is_left_is_refused(site: TracedSite) -> None:
    origin = site.ingest(topic="orders")
    site.delivered(origin)
    site.topics.delete(NAMES.ingress, 1)
    there = site.topics.offsets(NAMES.ingress, 0)
    with pytest.raises(NoSuchRecord, match="has been deleted: partition 0 of timer.ingress"):
        refuse_unrecorded(site.trace(origin), there, NAMES.outcomes)


def test_offset_that_no_record_has_is_refused(site: TracedSite) -> None:
    origin = site.ingest(topic="orders")
    site.topics.holes.add(origin)
    there = site.topics.offsets(NAMES.ingress, 0)
    assert find_beginning(site.topics, origin, NAMES.ingress, "b:9092") == origin
    with pytest.raises(NoSuchRecord, match="No record lies at timer.ingress/0/0 that can be read"):
        refuse_unrecorded(site.trace(origin), there, NAMES.outcomes)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        (Origin("nobody", 0, 0), "The topic nobody does not exist at b:9092."),
        (Origin(NAMES.ingress, 4, 0), "timer.ingress has no partition 4: it has 0 to 0."),
        (Origin(NAMES.ingress, 0, 9), "partition 0 of timer.ingress holds offsets 0 to 0."),
        (Origin(NAMES.dead_letters, 0, 0), "partition 0 of timer.dead-letters is empty."),
        (Origin("orders", 0, 0), "orders/0/0 does not come from a record of timer.ingress"),
    ],
)
def test_place_of_no_record_is_refused(site: TracedSite, named: Origin, sentence: str) -> None:
    site.ingest(topic="orders")
    site.topics.write(START_MS, "orders", None, b"", [])
    with pytest.raises(Exception, match=sentence):
        find_beginning(site.topics, named, NAMES.ingress, "b:9092")


def test_delivery_and_dead_letter_name_the_record_that_they_were_made_of(site: TracedSite) -> None:
    origin = site.ingest(topic="orders")
    for record in (site.delivered(origin), site.buried(origin)):
        assert find_beginning(site.topics, record.place, NAMES.ingress, "b:9092") == origin
