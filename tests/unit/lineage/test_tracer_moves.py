"""`trace` follows a moved record from any of its origins."""

from __future__ import annotations

import pytest

from tests.unit.lineage.test_tracer import HOUR_MS, step
from tests.unit.lineage.traced_topics import START_MS, TracedSite, told


@pytest.fixture
def site() -> TracedSite:
    return TracedSite()


def test_a_moved_record_is_followed_from_its_first_origin_to_its_end(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="1h", id="a")
    site.passes(HOUR_MS // 2)
    second = site.moved(first, START_MS + 3 * HOUR_MS)
    site.passes(HOUR_MS)
    third = site.hopped(second)
    delivery = site.delivered(third, late_ms=7)
    story = site.story(first)
    assert told(story) == ["ingested", "replaced", "rolled", "due", "delivered"]
    assert step(story, "replaced")[2:4] == (second, "moved to another time")
    assert step(story, "due").time_ms == START_MS + 3 * HOUR_MS
    delivered = step(story, "delivered")
    assert (delivered.where, delivered.late_ms) == (delivery.place, 7)
    assert (story.state, story.first_origin, story.unknown) == ("delivered", first, [])
    assert all(site.story(origin) == story for origin in (second, third))


def test_a_move_stands_before_a_delivery_that_its_outcome_follows(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="1h")
    site.passes(HOUR_MS // 2)
    second = site.moving(first, site.now_ms - 1)
    site.delivered(second, late_ms=500)
    site.passes(100)
    site.replaced_by_move(first, second)
    story = site.story(first)
    assert told(story) == ["ingested", "replaced", "delivered"]
    assert step(story, "replaced").due_ms == START_MS + HOUR_MS // 2 - 1
    assert step(story, "delivered").late_ms == 501


def test_what_came_too_late_to_take_a_place_has_a_story_of_its_own(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="1h")
    site.passes(HOUR_MS // 2)
    hopped = site.hopped(first)
    late = site.moved_too_late(first, START_MS + 2 * HOUR_MS)
    delivery = site.delivered(hopped)
    for origin in (first, hopped):
        story = site.story(origin)
        assert told(story) == ["ingested", "rolled", "due", "delivered"]
        assert step(story, "delivered").where == delivery.place
    story = site.story(late)
    assert told(story) == ["ingested", "missed"]
    assert step(story, "missed").detail == "the record has already ended"
    assert (story.state, story.first_origin) == ("missed", late)


def test_a_half_message_is_followed_through_its_commit_and_its_move(site: TracedSite) -> None:
    half = site.ingest(topic="orders", delay="1h", id="h", transaction="prepare")
    commit = site.ingest(id="h", transaction="commit")
    site.ended(commit, "applied")
    after = site.moved(half, START_MS + 2 * HOUR_MS, commit)
    site.delivered(after)
    story = site.story(half)
    assert told(story) == ["ingested", "committed", "replaced", "due", "delivered"]
    assert site.story(after) == story


def test_what_waits_for_its_new_time_says_so(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="1h")
    site.moved(first, START_MS + 2 * HOUR_MS)
    story = site.story(first)
    assert (story.state, step(story, "pending").due_ms) == ("pending", START_MS + 2 * HOUR_MS)
