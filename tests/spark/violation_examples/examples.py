"""The worked examples of docs/audit-violations.md, without `contradicted`.

Each function writes a producer's records, lets the real proxy work, and then injects the violation.
"""

from __future__ import annotations

from tests.spark.violation_examples.topics import SECOND_MS, ExampleTopics
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS

FIRST_DUE_MS = START_MS + 10 * SECOND_MS


def delivery_lost(t: ExampleTopics) -> None:
    t.write("1001", "pay!", timer_topic="reminders", timer_delay="10s")
    t.wait(20)
    t.lose(t.only("reminders"), "the delivery is gone")


def successor_lost(t: ExampleTopics) -> None:
    t.set_policy(roll_after_ms=60 * SECOND_MS)
    asked = t.write("1001", "pay!", timer_topic="reminders", timer_delay="90s")
    t.wait(100)
    t.note(t.outcome(asked), "the record was rewritten")
    t.unwrite(t.only("reminders"))
    successor = t.all(INGRESS)[-1]
    t.lose(successor, "the rewritten record is gone")


def delivered_twice(t: ExampleTopics) -> None:
    t.write("1001", "pay!", timer_topic="reminders", timer_delay="10s")
    t.wait(20)
    t.note(t.copy(t.only("reminders"), after_ms=2_000), "the same record again")


def delivered_early(t: ExampleTopics) -> None:
    t.write("1001", "pay!", timer_topic="reminders", timer_delay="10s")
    t.wait(20)
    early = t.only("reminders")
    early.timestamp_ms -= 1_500
    t.note(early, "1.5 s before `timer-due`")


def claims_a_time_to_come(t: ExampleTopics) -> None:
    t.write("1001", "pay!", timer_topic="reminders", timer_delay="1h")
    t.wait(20)
    due_ms = START_MS + 3_600 * SECOND_MS
    claimed = t.delivery(t.only(INGRESS), "reminders", 0, due_ms, due_ms)
    t.note(claimed, "there already at 08:10")


def delivered_late(t: ExampleTopics) -> None:
    t.write("1001", "disk full", timer_topic="alerts", timer_delay="10s")
    t.wait(5)
    t.stop()
    t.wait(10)
    t.start()
    t.wait(5)
    t.note(t.only("alerts"), "5 s after `timer-due`")


def overdue(t: ExampleTopics) -> None:
    asked = t.write("1001", "disk full", timer_topic="alerts", timer_delay="5m")
    t.wait(5)
    t.stop()
    t.note(asked, "due at 08:05; nothing came until 08:10")


def value_changed(t: ExampleTopics) -> None:
    t.write("1001", "pay 10", timer_topic="reminders", timer_delay="10s")
    t.wait(20)
    changed = t.only("reminders")
    changed.value_ = b"pay 99"
    t.note(changed, "another value")


def partitions_added(t: ExampleTopics) -> None:
    t.write("1004", "pay!", timer_topic="payments", timer_delay="10s")
    t.wait(20)
    t.note(t.only("payments"), "written when `payments` had 4 partitions; now it has 6")
    t.create("payments", 6)


def letter_changed(t: ExampleTopics) -> None:
    t.write("1001", "pay 10", timer_topic="reminders", timer_dealy="10s")
    t.wait(5)
    letter = t.only("timer.dead-letters")
    letter.value_ = b"pay 99"
    t.note(letter, "another value")


def producer_aborted(t: ExampleTopics) -> None:
    t.write("1000", "pay!", timer_topic="reminders", timer_delay="1h")
    aborted = t.write("1001", "pay!", timer_topic="reminders", timer_delay="10s")
    t.wait(20)
    t.note(t.only("reminders"), "its ingress record was never committed")
    t.lose(aborted, "its transaction was aborted")


def origin_made_up(t: ExampleTopics) -> None:
    t.write("1000", "pay!", timer_topic="reminders", timer_delay="1h")
    t.wait(20)
    headers: list[tuple[str, bytes | None]] = [("timer-origin", b"billing-job-7")]
    t.note(
        t.append("reminders", 0, b"1001", b"pay!", headers, FIRST_DUE_MS),
        "not an ingress record",
    )
