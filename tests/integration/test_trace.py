"""`trace` on a real broker and proxy: each possible history of a record."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from kafka_delay import Received, RetryConsumer
from proxy.config.settings import Settings
from proxy.dead_letters.letter import read_origin
from proxy.lineage.histories import NotAllRead, TimeSpan
from proxy.lineage.topics import KafkaTopics
from tests.integration.tracing import await_state, in_ingress, place, run_command, trace
from tests.support.installation.installation import Installation
from tests.support.installation.rights import allow
from tests.support.quiet_clients import QUIET
from tests.support.records import Headers, Incoming, Outgoing, new_topic, read_to_end
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.core]

WITHIN_S = 180
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01".encode()
TRACESTATE = b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
CONTEXT: Headers = [("traceparent", TRACEPARENT), ("tracestate", TRACESTATE)]


def trace_context(headers: Headers) -> Headers:
    return [header for header in headers if header[0] in {"traceparent", "tracestate"}]


class Site(Installation):
    """An installation with one partition, so that ids meet. Its proxy rewrites and retries soon."""

    def start(self) -> None:
        self.orders = self.target()
        self.proxy(
            roll_after="1500ms",
            levels="1s",
            retry={"first_level": 1, "max_attempts": 1_000},
            transactions={"immunity": "500ms", "check_interval": "10m"},
        ).start_ready()

    def write(self, mark: str, **asked: str) -> str:
        named = {f"timer-{name.replace('_', '-')}": text for name, text in asked.items()}
        headers = [(name, text.encode()) for name, text in {**named, "mark": mark}.items()]
        self.send([Outgoing(b"k", mark.encode(), [*headers, *CONTEXT])])
        found = in_ingress(self, "mark", mark.encode())
        assert found is not None
        return place(self.ingress, found)

    def delivered(self, topic: str, origin: str) -> Incoming:
        found: list[Incoming] = []

        def is_there() -> bool:
            records = read_to_end(self.bootstrap, topic)
            found.extend(one for one in records if one.header("timer-origin") == origin.encode())
            return bool(found)

        wait_for(is_there, WITHIN_S, f"{origin} in {topic}")
        return found[0]


@pytest.fixture(scope="module")
def site(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(kafka, tmp_path_factory.mktemp("trace"), partitions=1)
    made.start()
    yield made
    made.close()


def test_delivery_is_told_with_how_late_it_was_and_its_trace_id(site: Site) -> None:
    origin = site.write("plain", topic=site.orders, delay="500ms")
    told = await_state(site, origin, "delivered")
    record = site.delivered(site.orders, origin)
    assert told.whats == ["ingested", "due", "delivered"]
    assert told.step("delivered")["where"] == place(site.orders, record)
    assert told.step("delivered")["late_ms"] >= 0
    assert told.story["trace_id"] == TRACE_ID
    assert trace_context(record.headers) == CONTEXT
    assert told.story["first_origin"] == origin
    assert told.story["unknown"] == []


def test_delivery_leads_back_to_its_ingress_record(site: Site) -> None:
    origin = site.write("by delivery", topic=site.orders)
    record = site.delivered(site.orders, origin)
    assert trace(site, place(site.orders, record)).story["origin"] == origin


def test_rolled_record_is_followed_from_any_of_its_origins(site: Site) -> None:
    first = site.write("rolled", topic=site.orders, delay="4s")
    told = await_state(site, first, "delivered")
    assert told.whats[0] == "ingested"
    assert set(told.whats[1:-2]) == {"rolled"}
    assert told.whats[-2:] == ["due", "delivered"]
    for step in told.story["steps"]:
        again = trace(site, step["origin"])
        assert again.story["steps"] == told.story["steps"]
        assert again.story["first_origin"] == first
    last = told.story["steps"][-1]["origin"]
    record = site.delivered(site.orders, last)
    assert trace_context(record.headers) == CONTEXT
    assert f"first origin {first}: delivered" in run_command(site, "trace", last).out


def test_requeued_record_says_why_it_had_to_wait(site: Site) -> None:
    target = f"{site.name}.late"
    origin = site.write("requeued", topic=target)
    wait_for(lambda: "requeued" in trace(site, origin).whats, WITHIN_S, "a first attempt")
    site.named_target(target)
    told = await_state(site, origin, "delivered")
    assert "target-unknown" in told.step("requeued")["detail"]
    record = site.delivered(target, told.story["steps"][-1]["origin"])
    assert trace_context(record.headers) == CONTEXT


def test_cancelled_record_says_who_ended_it_and_the_cancel_what_it_ended(site: Site) -> None:
    origin = site.write("to cancel", topic=site.orders, delay="1h", id="c1")
    assert trace(site, origin).story["state"] == "pending"
    cancel = site.write("the cancel", cancel="c1")
    told = await_state(site, origin, "cancelled")
    ended = told.step("cancelled")
    assert ended["where"] == cancel
    assert told.story["first_origin"] == origin
    assert await_state(site, cancel, "applied").step("applied")["where"] == ended["origin"]


def test_replaced_record_names_what_took_its_place(site: Site) -> None:
    origin = site.write("old", topic=site.orders, delay="1h", id="r1")
    newer = site.write("new", topic=site.orders, delay="1h", id="r1")
    assert await_state(site, origin, "replaced").step("replaced")["where"] == newer


def test_dead_letter_says_what_to_do_and_its_replay_is_followed(site: Site) -> None:
    origin = site.write("misspelt", topic=site.orders, dealy="1h")
    told = await_state(site, origin, "dead-lettered")
    assert "header-unknown" in told.step("dead-lettered")["detail"]
    assert "Replay with --unset" in told.step("dead-lettered")["detail"]
    fix = ["--unset", "timer-dealy", "--yes"]
    replayed = run_command(site, "dead-letters", "replay", origin, *fix)
    assert replayed.code == 0, replayed.out + replayed.err
    told = await_state(site, origin, "delivered")
    assert told.whats == ["ingested", "dead-lettered", "replayed", "delivered"]
    again = told.step("replayed")["where"]
    assert trace(site, again).story["steps"] == told.story["steps"]


def test_half_message_shows_its_check_backs_and_who_decided(site: Site) -> None:
    checks = site.check_topic()
    asked = {"topic": site.orders, "id": "h1", "check_topic": checks}
    origin = site.write("half", transaction="prepare", **asked)
    wait_for(lambda: "check-back 1" in trace(site, origin).whats, WITHIN_S, "a check-back")
    assert "not committed or rolled back yet" in trace(site, origin).step("pending")["detail"]
    commit = site.write("its commit", transaction="commit", id="h1")
    told = await_state(site, origin, "delivered")
    assert told.whats == ["ingested", "check-back 1", "committed", "delivered"]
    assert told.step("committed")["where"] == commit


def test_half_message_that_is_rolled_back_says_by_whom(site: Site) -> None:
    asked = {"topic": site.orders, "id": "h2", "check_topic": site.check_topic()}
    origin = site.write("to roll back", transaction="prepare", **asked)
    rollback = site.write("its rollback", transaction="rollback", id="h2")
    assert await_state(site, origin, "rolled-back").step("rolled-back")["where"] == rollback


def test_failures_of_a_consumer_are_followed_from_the_first_delivery_on(site: Site) -> None:
    seen: list[Received] = []

    def handle(record: Received) -> None:
        if record.value == b"retried":
            seen.append(record)
            if len(seen) < 3:
                raise ValueError("no stock")

    group = f"{site.name}-billing"
    settings = {"bootstrap.servers": site.bootstrap, **QUIET}
    topic = new_topic(site.bootstrap, "bills")
    consumer = RetryConsumer(settings, group, [topic], handle, ingress=site.ingress)
    running = threading.Thread(target=consumer.run)
    running.start()
    try:
        origin = site.write("retried", topic=topic)
        wait_for(lambda: len(seen) == 3, WITHIN_S, "the third attempt")
    finally:
        consumer.stop()
        running.join(WITHIN_S)
    told = trace(site, origin)
    again = ["due", "delivered"]
    assert told.whats == ["ingested", "delivered", "retry 1", *again, "retry 2", *again]
    why = f"consumers of {group} failed at the record (ValueError: no stock)"
    assert why in told.step("retry 1")["detail"]
    assert trace(site, told.step("retry 2")["where"]).story["steps"] == told.story["steps"]
    for record in seen:
        assert trace_context(record.headers) == CONTEXT


def test_record_that_waits_says_until_when(site: Site) -> None:
    origin = site.write("waits", topic=site.orders, delay="1h")
    told = trace(site, origin)
    assert told.story["state"] == "pending"
    waiting = told.step("pending")
    assert waiting["due_ms"] - told.step("ingested")["time_ms"] == 3_600_000
    assert re.search(r"due in (59(\.\d)?|60) min", run_command(site, "trace", origin).out)


@pytest.mark.parametrize(
    ("origin", "sentence"),
    [
        ("nobody-has-this/0/0", "The topic nobody-has-this does not exist at"),
        ("{ingress}/1/0", "{ingress} has no partition 1: it has 0 to 0."),
        ("{ingress}/0/999999", "{ingress}/0/999999: partition 0 of {ingress} holds offsets 0 to"),
        ("{outcomes}/0/0", "does not come from a record of {ingress}"),
    ],
)
def test_place_of_no_record_is_told_in_a_sentence(site: Site, origin: str, sentence: str) -> None:
    site.write("so that an outcome exists", cancel="nothing")
    site.await_ingested()
    names = {"ingress": site.ingress, "outcomes": site.outcomes}
    told = trace(site, origin.format(**names))
    assert (told.code, told.out) == (1, "")
    assert sentence.format(**names) in told.err


def test_what_retention_has_deleted_is_named_and_the_rest_is_told(
    installation: Installation,
) -> None:
    orders = installation.target()
    installation.proxy(roll_after="1s").start_ready()
    asked = [("timer-topic", orders.encode()), ("timer-delay", b"2500")]
    installation.send(
        [Outgoing(b"k", b"rolled", asked, 0), Outgoing(b"k", b"at once", asked[:1], 1)]
    )
    rolled, at_once = f"{installation.ingress}/0/0", f"{installation.ingress}/1/0"
    assert await_state(installation, rolled, "delivered").whats[1] == "rolled"
    assert await_state(installation, at_once, "delivered").code == 0
    installation.stop_proxies()
    for partition in (0, 1):
        installation.delete_ingress(partition)
    told = trace(installation, rolled)
    assert (told.code, told.whats[:2]) == (0, ["deleted", "rolled"])
    assert f"The time and the request of {rolled}" in told.story["unknown"][-1]
    told = trace(installation, at_once)
    assert (told.code, told.out) == (1, "")
    assert f"{at_once} has been deleted: partition 1 of {installation.ingress}" in told.err


def test_user_who_may_not_read_is_told_which_topic_and_how_to_grant_it(
    asking_installation: Installation,
) -> None:
    site = asking_installation
    site.send([Outgoing(b"k", b"v", [("timer-topic", b"orders")])])
    origin = f"{site.ingress}/0/0"
    assert trace(site, origin).story["state"] == "pending"
    allow(site.bootstrap, site.ingress, AclOperation.DESCRIBE)
    wait_for(lambda: trace(site, origin).code, WITHIN_S, "the broker to apply the rule")
    told = trace(site, origin)
    assert (told.code, told.out) == (1, "")
    assert f"does not let the user read the topic {site.ingress}" in told.err
    assert f"--operation Read --topic {site.ingress}" in told.err
    topics = KafkaTopics(Settings(kafka=site.kafka()), 60, skips_refused=True)
    topics.search([TimeSpan(site.ingress), TimeSpan(site.outcomes)], lambda _: False)
    (said,) = topics.unread()
    assert said.startswith(f"What lies in {site.ingress}. ")


def test_reading_ends_when_the_time_is_over(site: Site) -> None:
    origin = read_origin(site.write("in a hurry", topic=site.orders, delay="1h"))
    assert origin is not None
    now_s = iter([0.0, 1.0, 2.0, *[61.0] * 100])
    settings = Settings(kafka={"bootstrap.servers": site.bootstrap})
    topics = KafkaTopics(settings, 60, now_s=lambda: next(now_s))
    assert topics.offsets(site.ingress, 0).stop > 0
    with pytest.raises(NotAllRead, match=site.ingress):
        topics.search([TimeSpan(site.ingress)], lambda _: False)
