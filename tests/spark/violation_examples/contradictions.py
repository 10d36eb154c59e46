"""The worked examples of `contradicted`, which has several forms."""

from __future__ import annotations

from tests.spark.violation_examples.examples import FIRST_DUE_MS
from tests.spark.violation_examples.topics import SECOND_MS, ExampleTopics
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS
from tools.campaign.scene import OWN

ASKED = {"timer_topic": "reminders", "timer_delay": "10s"}


def cancelled_and_delivered(t: ExampleTopics) -> None:
    asked = t.write_cancelled("1001", "pay!", **ASKED)
    t.note(t.delivery(asked, "reminders", 0, FIRST_DUE_MS, FIRST_DUE_MS), "delivered all the same")


def cancelled_by_nobody(t: ExampleTopics) -> None:
    asked = t.write("1001", "pay!", **ASKED, timer_id="1001")
    t.wait(3)
    cancel = t.write("1001", "", timer_cancel="1001")
    t.wait(20)
    t.note(t.outcome(asked), "no cancel of it was written")
    t.unsay(cancel)
    t.unwrite(cancel)


def cancel_ignored(t: ExampleTopics) -> None:
    asked = t.write("1001", "pay!", timer_topic="reminders", timer_delay="30s", timer_id="1001")
    t.wait(3)
    cancel = t.write("1001", "", timer_cancel="1001")
    t.wait(40)
    said = t.outcome(cancel)
    said.value_ = (said.value_ or b"").replace(b"applied", b"missed")
    t.note(said, "27 s before the record was due")
    t.unsay(asked)
    due_ms = START_MS + 30 * SECOND_MS
    t.note(t.delivery(asked, "reminders", 0, due_ms, due_ms), "delivered later")


def replacement_ignored(t: ExampleTopics) -> None:
    first = t.write("1001", "pay 10", timer_topic="reminders", timer_delay="30s", timer_id="1001")
    t.wait(3)
    second = t.write("1001", "pay 20", timer_topic="reminders", timer_delay="1s", timer_id="1001")
    t.wait(40)
    t.note(t.only("reminders"), f"of offset {second.offset_}, which replaces offset 0")
    t.unsay(first)
    due_ms = START_MS + 30 * SECOND_MS
    t.note(t.delivery(first, "reminders", 0, due_ms, due_ms), "delivered all the same")


def purge_ignored(t: ExampleTopics) -> None:
    t.set_policy(recalls_in=INGRESS)
    asked = t.write("1001", "pay!", timer_topic="reminders", timer_delay="30s")
    t.wait(3)
    t.note(t.purge("rem*"), "ends pending records of such targets")
    t.wait(40)
    t.unsay(asked)
    due_ms = START_MS + 30 * SECOND_MS
    t.note(t.delivery(asked, "reminders", 0, due_ms, due_ms), "delivered all the same")


def moved_and_delivered(t: ExampleTopics) -> None:
    t.set_policy(recalls_in=INGRESS)
    asked = t.write("1001", "pay!", timer_topic="reminders", timer_delay="10s")
    t.wait(3)
    t.move(0, START_MS + 30 * SECOND_MS)
    t.wait(40)
    t.note(t.all(INGRESS)[-1], "replaces offset 0, at another time")
    t.note(t.outcome(asked), "it was moved")
    t.note(t.only("reminders"), "delivered at its new time")
    late = t.delivery(asked, "reminders", 0, FIRST_DUE_MS, FIRST_DUE_MS)
    t.note(late, "also delivered at its old time")


def refused_and_delivered(t: ExampleTopics) -> None:
    asked = t.write("1001", "pay!", timer_topic="reminders", timer_dealy="10s")
    t.wait(20)
    t.note(asked, "`timer-dealy` is misspelt")
    t.unsay(asked)
    t.unwrite(t.only(OWN.dead_letters))
    t.note(t.delivery(asked, "reminders", 0, START_MS, START_MS), "delivered at once")


def half_message_delivered(t: ExampleTopics) -> None:
    half = t.write(
        "1001", "pay!", timer_topic="reminders", timer_transaction="prepare", timer_id="1001"
    )
    t.wait(5)
    t.write("1001", "", timer_transaction="rollback", timer_id="1001")
    t.wait(5)
    t.unsay(half)
    t.note(t.delivery(half, "reminders", 0, START_MS, START_MS), "nobody committed it")


def dead_letter_without_fault(t: ExampleTopics) -> None:
    asked = t.write("1001", "pay!", **ASKED)
    t.wait(20)
    t.unwrite(t.only("reminders"))
    t.note(
        t.letter(asked, "id-bad", "the id is empty", FIRST_DUE_MS, START_MS), "it has no id at all"
    )


def dead_letter_lost(t: ExampleTopics) -> None:
    t.write("1001", "pay!", timer_topic="reminders", timer_dealy="10s")
    t.wait(5)
    t.note(t.only(OWN.outcomes), "names a dead letter")
    t.lose(t.only(OWN.dead_letters), "the dead letter is gone")


def dead_letter_without_outcome(t: ExampleTopics) -> None:
    t.write("1001", "pay!", timer_topic="reminders", timer_dealy="10s")
    t.wait(5)
    t.lose(t.only(OWN.outcomes), "the outcome is gone")


def cancelled_and_dead_lettered(t: ExampleTopics) -> None:
    asked = t.write_cancelled("1001", "pay!", **ASKED)
    detail = "the broker did not take it"
    t.note(t.letter_alone(asked, "publish-failed", detail, FIRST_DUE_MS), "also dead-lettered")


def out_of_order(t: ExampleTopics) -> None:
    at = {"timer_topic": "reminders", "timer_deliver_at": str(FIRST_DUE_MS)}
    t.write("1001", "first", **at)
    t.write("1001", "second", **at)
    t.wait(20)
    one, two = t.all("reminders")
    one.headers_, two.headers_ = two.headers_, one.headers_
    one.value_, two.value_ = two.value_, one.value_
    t.note(one, "written second")
    t.note(two, "written first")


def given_up_too_soon(t: ExampleTopics) -> None:
    asked = t.write("1001", "pay!", timer_topic="remindres", timer_delay="10s")
    t.wait(20)
    t.unwrite(t.only("remindres"))
    detail = "the topic remindres does not exist"
    t.note(
        t.letter(asked, "target-unknown", detail, FIRST_DUE_MS, FIRST_DUE_MS),
        "at the first attempt",
    )


def dropped_without_a_rule(t: ExampleTopics) -> None:
    asked = t.write("1001", "pay!", **ASKED)
    t.wait(20)
    t.unwrite(t.only("reminders"))
    detail = "60000 ms overdue; reminders allows 5000 (release.overdue)"
    said = t.say(asked, "expired", detail, FIRST_DUE_MS, FIRST_DUE_MS + 60 * SECOND_MS)
    t.note(said, "there never was such a rule")


def went_on_from_what_was_delivered(t: ExampleTopics) -> None:
    t.set_policy(roll_after_ms=60 * SECOND_MS)
    asked = t.write("1001", "pay!", timer_topic="reminders", timer_delay="90s")
    t.wait(100)
    t.unsay(asked)
    due_ms = START_MS + 90 * SECOND_MS
    t.note(t.all(INGRESS)[-1], "continues offset 0")
    t.note(t.only("reminders"), "the successor")
    t.note(t.delivery(asked, "reminders", 0, due_ms, due_ms), "its predecessor")


def asked_twice(t: ExampleTopics) -> None:
    t.create("payment-checks", 1)
    t.write(
        "1001",
        "pay!",
        timer_topic="reminders",
        timer_transaction="prepare",
        timer_id="1001",
        timer_check_topic="payment-checks",
    )
    t.wait(10)
    t.write("1001", "", timer_transaction="commit", timer_id="1001")
    t.wait(5)
    t.note(t.copy(t.only("payment-checks"), after_ms=1_000), "the same check-back again")
