"""`trace` follows records everywhere, and names gaps, without a broker."""

from __future__ import annotations

import pytest

from proxy.dead_letters.letter import Origin, Place
from proxy.dead_letters.replay_plan import mark_key
from proxy.dispatch.release_control import UNTIL_RESUMED_MS
from proxy.lineage.story import Step, Story
from proxy.lineage.tracer import MOST_HISTORIES
from proxy.protocol.body import Headers
from tests.support.hostile_json import HOSTILE
from tests.unit.lineage.traced_topics import NAMES, START_MS, TracedSite, told

HOUR_MS = 3_600_000
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def site() -> TracedSite:
    return TracedSite()


def step(story: Story, what: str) -> Step:
    return next(one for one in story.steps if one.what == what)


def test_delivery_is_told_with_its_due_and_how_late_it_was(site: TracedSite) -> None:
    context: Headers = [("traceparent", f"00-{TRACE_ID}-00f067aa0ba902b7-01".encode())]
    origin = site.ingest(context, topic="orders", delay="1h")
    delivery = site.delivered(origin, late_ms=13)
    story = site.story(origin)
    assert told(story) == ["ingested", "due", "delivered"]
    assert [one.time_ms for one in story.steps] == [
        START_MS,
        START_MS + HOUR_MS,
        START_MS + HOUR_MS + 13,
    ]
    assert step(story, "delivered")[2:] == (delivery.place, "", origin, None, 13)
    assert step(story, "ingested")[2:] == (origin, "for orders", origin, START_MS + HOUR_MS, None)
    assert (story.state, story.trace_id, story.unknown) == ("delivered", TRACE_ID, [])


def test_chain_is_the_same_from_each_of_its_origins(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="3h")
    site.passes(HOUR_MS)
    second = site.hopped(first)
    site.ingest(topic="orders")
    site.passes(2 * HOUR_MS)
    third = site.hopped(second, "requeued", "target-unknown: no topic; publish attempt 1 of 16")
    site.delivered(third)
    story = site.story(first)
    assert told(story) == ["ingested", "rolled", "due", "requeued", "delivered"]
    assert step(story, "rolled")[2:4] == (second, "before retention could delete it")
    assert step(story, "requeued").where == third
    assert "target-unknown" in step(story, "requeued").detail
    assert all(site.story(origin) == story for origin in (second, third))


def test_of_two_records_with_an_id_the_older_names_the_newer(site: TracedSite) -> None:
    old = site.ingest(topic="orders", delay="1h", id="a")
    new = site.ingest(topic="orders", delay="1h", id="a")
    site.ended(old, "replaced", next_offset=new.offset)
    assert step(site.story(old), "replaced").where == new
    assert site.story(new).state == "pending"


def test_cancel_that_ended_a_record_is_found_among_others(site: TracedSite) -> None:
    origin = site.ingest(topic="orders", delay="1h", id="a")
    cancel = site.ingest(cancel="a")
    site.ended(origin, "cancelled")
    site.ended(cancel, "applied")
    late = site.ingest(cancel="a")
    site.ended(late, "missed", detail="no record with this id is pending")
    again = site.ingest(topic="orders", delay="1h", id="a")
    other = site.ingest(cancel="a")
    site.ended(again, "cancelled")
    site.ended(other, "applied")
    assert step(site.story(origin), "cancelled").where == cancel
    assert step(site.story(again), "cancelled").where == other
    assert step(site.story(cancel), "applied").where == origin
    assert step(site.story(late), "missed").detail == "no record with this id is pending"


def test_recall_that_ended_a_record_is_found_by_the_origin_that_it_names(site: TracedSite) -> None:
    origin, other = (site.ingest(topic="orders", delay="1h") for _ in range(2))
    beside, recall = (site.ingest(recall=str(one)) for one in (other, origin))
    for ended in (other, origin):
        site.ended(ended, "cancelled")
    for control in (beside, recall):
        site.ended(control, "applied")
    assert step(site.story(origin), "cancelled").where == recall
    assert step(site.story(other), "cancelled").where == beside
    assert step(site.story(recall), "applied").where == origin


def test_a_purge_that_ended_a_record_is_named(site: TracedSite) -> None:
    origin, purge = site.ingest(topic="orders", delay="1h"), site.ingest(purge="orders")
    site.ended(origin, "cancelled", detail=f"purged by {purge}")
    assert step(site.story(origin), "cancelled")[2:4] == (purge, "purged")


def test_cancel_that_met_a_record_while_it_was_rewritten_is_found(site: TracedSite) -> None:
    origin = site.ingest(topic="orders", delay="2h", id="a")
    site.passes(HOUR_MS)
    cancel = site.ingest(cancel="a")
    after = site.hopped(origin)
    site.ended(cancel, "applied")
    site.passes(HOUR_MS // 2)
    site.ended(after, "cancelled", detail="cancelled while it was rewritten")
    story = site.story(origin)
    assert told(story) == ["ingested", "rolled", "cancelled"]
    assert step(story, "cancelled").where == cancel


def test_half_message_is_followed_through_its_commit(site: TracedSite) -> None:
    site.topics.grow("checks", 1)
    origin = site.ingest(
        topic="orders", delay="1h", id="h", check_topic="checks", transaction="prepare"
    )
    site.passes(6_000)
    site.check_back("checks", "h", 1)
    site.check_back("checks", "another", 1)
    waits = site.story(origin)
    assert told(waits) == ["ingested", "check-back 1", "pending"]
    assert "not committed" in step(waits, "pending").detail
    commit = site.ingest(transaction="commit", id="h")
    site.ended(commit, "applied")
    site.passes(1_000)
    after = site.hopped(origin, commit=commit)
    site.delivered(after)
    story = site.story(after)
    assert told(story) == ["ingested", "check-back 1", "committed", "rolled", "due", "delivered"]
    assert step(story, "committed").where == commit
    assert story.first_origin == origin
    assert site.story(origin) == story


def test_half_message_that_nobody_decided_is_told_with_what_to_do(site: TracedSite) -> None:
    origin = site.ingest(topic="orders", id="h", transaction="prepare")
    asked: Headers = [("timer-hop-from", str(origin.offset).encode())]
    expiry = site.ingest(asked, transaction="expire", id="h")
    letter = site.buried(origin, "transaction-expired")
    site.ended(expiry, "applied")
    story = site.story(origin)
    assert (told(story), story.state) == (["ingested", "dead-lettered"], "dead-lettered")
    assert step(story, "dead-lettered").where == letter.place
    assert "Ask the record's producer" in step(story, "dead-lettered").detail


def test_replay_of_a_dead_letter_is_followed_and_leads_back(site: TracedSite) -> None:
    first = site.ingest(topic="orders")
    letter = site.buried(site.hopped(first, "requeued", "paused"))
    again = site.replayed(letter)
    site.replayed(site.buried(site.ingest(topic="orders")))
    site.delivered(again)
    story = site.story(first)
    assert told(story) == ["ingested", "requeued", "dead-lettered", "replayed", "delivered"]
    assert site.story(again) == story


def test_consumers_of_two_groups_that_fail_are_both_followed(site: TracedSite) -> None:
    site.topics.grow("retry.a", 1)
    site.topics.grow("retry.b", 1)
    first = site.ingest(topic="orders")
    delivery = site.delivered(first)
    of_a, of_b = site.failed(delivery, "a"), site.failed(delivery, "b")
    moved = site.hopped(of_a, "requeued", "retry.a is paused")
    again = site.replayed(site.buried(of_b))
    second = site.failed(site.delivered(moved), "a")
    site.delivered(again)
    site.delivered(second)
    story = site.story(first)
    retries = [one.origin for one in story.steps if one.what.startswith("retry")]
    assert retries == [of_a, of_b, second]
    assert told(story).count("delivered") == 4
    (failure,) = (one for one in story.steps if one.origin == of_b and one.what == "retry 1")
    assert "consumers of b failed at the record (ValueError: no stock)" in failure.detail
    assert site.story(second) == story == site.story(again)


def test_record_sent_back_with_its_stamps_by_another_client_is_a_retry(site: TracedSite) -> None:
    site.topics.grow("retry.g", 1)
    first = site.ingest(topic="orders")
    delivery = site.delivered(first)
    back = site.ingest(delivery.headers, retry_group="g", attempt="0")
    site.hopped(back, "requeued", "retry.g is paused")
    story = site.story(first)
    assert told(story) == ["ingested", "delivered", "retry", "requeued", "pending"]
    assert site.story(back) == story


def test_failure_is_looked_for_as_long_as_asked_for(site: TracedSite) -> None:
    delivery = site.delivered(site.ingest(topic="orders"))
    site.passes(HOUR_MS)
    site.failed(delivery, "g")
    assert told(site.story(Origin(NAMES.ingress, 0, 0))) == ["ingested", "delivered"]


def test_retry_of_what_is_not_there_any_more_says_so(site: TracedSite) -> None:
    retry = site.failed(site.delivered(site.ingest(topic="orders")), "g")
    site.topics.delete("orders", 1)
    story = site.story(retry)
    assert story.first_origin == retry
    assert story.unknown == ["What was before the retry: orders/0/0 was deleted."]


def test_first_origin_that_is_deleted_is_told_by_its_outcome(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="3h")
    site.passes(HOUR_MS)
    second = site.hopped(first)
    site.topics.delete(NAMES.ingress, second.offset)
    site.passes(2 * HOUR_MS)
    site.delivered(second)
    story = site.story(first)
    assert told(story) == ["deleted", "rolled", "delivered"]
    assert story == site.story(second)
    assert story.unknown == [
        f"The time and the request of {first}: retention has deleted the record."
    ]


def test_record_of_a_skipped_batch_is_told_by_its_dead_letter(site: TracedSite) -> None:
    origin = site.ingest(topic="orders")
    site.buried(origin, "record-unreadable")
    site.topics.holes.add(origin)
    story = site.story(origin)
    assert told(story) == ["unreadable", "dead-lettered"]
    assert story.unknown == [
        f"The time and the request of {origin}: the record's batch cannot be read."
    ]


def test_chain_is_taken_up_again_behind_what_is_deleted(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="3h")
    site.passes(HOUR_MS)
    second = site.hopped(first)
    site.passes(HOUR_MS)
    third = site.hopped(second)
    site.topics.delete(NAMES.ingress, third.offset)
    site.delivered(third)
    story = site.story(first)
    assert told(story) == ["deleted", "rolled", "ingested", "due", "delivered"]
    assert step(story, "ingested").origin == third
    assert f"What came right after {first}: its successor was not found." in story.unknown
    assert step(site.story(third), "deleted").origin == second
    assert f"What lies between {first}, the first origin, and {second}." in (
        site.story(third).unknown
    )


def test_chain_of_which_nothing_but_a_late_copy_is_left_is_told(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="3h")
    site.passes(HOUR_MS)
    second = site.hopped(first)
    site.topics.delete(NAMES.ingress, second.offset)
    site.topics.delete(NAMES.outcomes, 1)
    story = site.story(first)
    assert told(story) == ["deleted", "ingested", "pending"]
    assert f"How {first} ended: it has no outcome, or its outcome was deleted." in story.unknown


def test_of_two_replays_of_a_letter_each_goes_on_as_its_own_record(site: TracedSite) -> None:
    """Both name the same first origin, and are rewritten at about the same time."""
    letter = site.buried(site.ingest(topic="orders", delay="5h"))
    one, other = site.replayed(letter), site.replayed(letter)
    site.hopped(other)
    after = site.hopped(one)
    assert site.trace(one).histories[-1].origin == after


def test_outcome_of_a_deleted_record_is_looked_for_where_its_successor_was_written(
    site: TracedSite,
) -> None:
    first = site.ingest(topic="orders", delay="3h")
    for _ in range(100):
        site.ended(site.ingest(topic="orders"), "expired")
    site.passes(HOUR_MS)
    second = site.hopped(first)
    site.topics.delete(NAMES.ingress, second.offset)
    assert told(site.story(second)) == ["deleted", "rolled", "pending"]
    assert site.topics.read[NAMES.outcomes] < 5


def test_what_ended_a_record_is_named_though_both_are_deleted(site: TracedSite) -> None:
    """A commit with the same id found nothing to decide, and does not count."""
    origin = site.ingest(topic="orders", delay="1h", id="a")
    commit = site.ingest(transaction="commit", id="a")
    site.ended(commit, "missed")
    cancel = site.ingest(cancel="a")
    site.ended(origin, "cancelled")
    site.ended(cancel, "applied")
    site.topics.delete(NAMES.ingress, 3)
    story = site.story(origin)
    assert told(story) == ["deleted", "cancelled"]
    assert step(story, "cancelled").where == cancel


def test_half_message_is_late_from_its_commit_on_if_that_came_after_its_due(
    site: TracedSite,
) -> None:
    """The commit's outcome may have a later stamp than the delivery."""
    origin = site.ingest(topic="orders", id="h", transaction="prepare")
    site.passes(HOUR_MS)
    commit = site.ingest(transaction="commit", id="h")
    site.delivered(origin, late_ms=3)
    site.passes(1)
    site.ended(commit, "applied")
    story = site.story(origin)
    assert told(story) == ["ingested", "committed", "delivered"]
    assert step(story, "delivered").late_ms == 0


def test_mark_that_leads_back_makes_no_circle(site: TracedSite) -> None:
    origin = site.ingest(topic="orders")
    letter = site.buried(origin)
    value = b'{"at":1,"as":"%s","origin":""}' % str(origin).encode()
    place = Place(*letter.place[1:])
    site.topics.write(site.now_ms, NAMES.replay_marks, mark_key("id", place), value, [])
    assert told(site.story(origin)) == ["ingested", "dead-lettered"]


def test_what_waits_says_until_when_or_that_its_target_is_paused(site: TracedSite) -> None:
    later, now = site.ingest(topic="orders", delay="2h"), site.ingest(topic="orders")
    assert step(site.story(later), "pending").due_ms == START_MS + 2 * HOUR_MS
    again = site.hopped(now, "requeued", "no-topic", not_before_ms=START_MS + 5_000)
    assert step(site.story(again), "pending").due_ms == START_MS + 5_000
    paused = site.hopped(again, "requeued", "orders is paused", not_before_ms=UNTIL_RESUMED_MS)
    waiting = step(site.story(paused), "pending")
    assert (waiting.due_ms, waiting.detail) == (
        None,
        "its target is paused",
    )


def test_what_is_known_is_told_when_the_time_is_over(site: TracedSite) -> None:
    first = site.ingest(topic="orders", delay="1h")
    site.delivered(site.hopped(first))
    site.topics.searches_allowed = 2
    trace = site.trace(first)
    story = site.story(first)
    assert not trace.is_whole
    assert [history.origin.offset for history in trace.histories] == [0, 1]
    assert trace.unknown[-1].endswith(
        "The time limit was reached before timer.outcomes, orders had been read."
    )
    assert (story.state, story.is_whole) == ("unknown", False)


def test_what_may_not_be_read_leaves_open_whether_a_record_still_waits(site: TracedSite) -> None:
    origin = site.ingest(topic="orders")
    site.delivered(origin)
    site.topics.unreadable = "orders"
    story = site.story(origin)
    assert (told(story), story.state, story.is_whole) == (["ingested"], "unknown", False)
    assert story.unknown == ["What lies in orders."]


def test_outcomes_are_read_in_the_partition_of_their_key(site: TracedSite) -> None:
    site = TracedSite(outcomes=8)
    for number in range(200):
        site.ended(site.ingest(cancel=str(number)), "missed")
    asked = Origin(NAMES.ingress, 0, 150)
    assert site.story(asked).state == "missed"
    assert site.topics.read[NAMES.outcomes] < 60


def test_outcome_from_before_the_topic_had_more_partitions_is_found(site: TracedSite) -> None:
    origins = [site.ingest(topic="orders", delay="1h") for _ in range(20)]
    for origin in origins:
        site.ended(origin, "expired")
    site.topics.grow(NAMES.outcomes, 7)
    assert {site.story(origin).state for origin in origins} == {"expired"}


def test_what_lies_before_the_record_is_not_read(site: TracedSite) -> None:
    for _ in range(100):
        site.ended(site.ingest(topic="orders"), "expired")
        site.delivered(site.ingest(topic="orders"))
    site.passes(HOUR_MS)
    origin = site.ingest(topic="orders")
    site.delivered(origin)
    assert site.story(origin).state == "delivered"
    assert sum(site.topics.read.values()) < 5


def test_chain_that_is_very_long_is_cut_with_the_place_where_it_goes_on(site: TracedSite) -> None:
    origin = site.ingest(topic="orders", delay="300d")
    for _ in range(MOST_HISTORIES + 1):
        site.passes(60_001 * 2)
        last, origin = origin, site.hopped(origin)
    trace = site.trace(Origin(NAMES.ingress, 0, 0))
    assert len(trace.histories) == MOST_HISTORIES
    why = f"a trace has at most {MOST_HISTORIES:,} records"
    assert trace.unknown == [f"What came from {last} on, because {why}. To see more, trace {last}."]


@pytest.mark.parametrize("name", HOSTILE)
def test_outcome_that_cannot_be_read_is_named_and_the_rest_is_told(
    site: TracedSite, name: str
) -> None:
    origin = site.ingest(topic="orders", delay="1h")
    write, outcomes = site.topics.write, NAMES.outcomes
    unreadable = write(site.now_ms, outcomes, str(origin).encode(), HOSTILE[name], [])
    story = site.story(origin)
    assert (told(story), story.state) == (["ingested"], "unknown")
    assert story.unknown == [
        f"How {origin} ended: its outcome, {unreadable.place}, cannot be read."
    ]
    site.ended(origin, "cancelled")
    assert site.story(origin).state == "cancelled"


@pytest.mark.parametrize("name", HOSTILE)
def test_mark_that_cannot_be_read_says_that_the_letter_was_replayed(
    site: TracedSite, name: str
) -> None:
    letter = site.buried(site.ingest(topic="orders"))
    key = mark_key("id", Place(*letter.place[1:]))
    site.topics.write(site.now_ms, NAMES.replay_marks, key, HOSTILE[name], [])
    for odd in (b"id 0/" + b"9" * 5_000, "id ²/0".encode()):
        site.topics.write(site.now_ms, NAMES.replay_marks, odd, b"{}", [])
    assert told(site.story(Origin(NAMES.ingress, 0, 0)))[:2] == ["ingested", "dead-lettered"]
