"""`dead-letters replay` on a real broker: chosen letters are replayed, none twice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException

from proxy.kafka.reader import TopicReader
from tests.integration.dead_letter_operator import Operator
from tests.support.dead_letters import letter_headers
from tests.support.installation.installation import Installation
from tests.support.quiet_clients import admin_client
from tests.support.records import Outgoing, new_topic, read_to_end, write
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

WITHIN_S = 180
OWN = [("timer-topic", b"secret-orders")]
SLOWLY = "1/s"
"""Enough letters to keep the replay busy on any machine."""


@pytest.fixture
def operator(kafka: str) -> Operator:
    return Operator(kafka)


def times_sent(operator: Operator) -> Counter[bytes | None]:
    return Counter(record.key for record in operator.sent_in())


def await_begun(operator: Operator, replay: subprocess.Popen[str]) -> None:
    """Return when some letters are written. If the replay ends before, fail with its output."""
    wait_for(
        lambda: sent_by_now(operator) >= 3 or replay.poll() is not None, WITHIN_S, "a part to go"
    )
    assert sent_by_now(operator) >= 3, replay.communicate()


def sent_by_now(operator: Operator) -> int:
    config = {
        "bootstrap.servers": operator.kafka,
        "group.id": operator.mark,
        "enable.partition.eof": True,
    }
    reader = TopicReader(partial(Consumer, config), operator.ingress, [0, 1])
    return sum(1 for p, span in reader.spans().items() for _ in reader.records(p, span))


def _has_sent(operator: Operator, letters: int) -> bool:
    return sent_by_now(operator) >= letters


def test_letter_goes_back_where_it_came_from_mended_and_with_its_first_origin(
    operator: Operator,
) -> None:
    operator.letters(2, more=[("timer-delay", b"9h"), ("trace", b"\xff")], value=b"\x00v")
    said = operator.replay("--set", "timer-delay=5s", "--unset", "trace", "--set", "note=mended")
    assert said.code == 0
    assert said.lines[-1] == {"replayed": 2, "stayed": {}, "stopped": False}
    (one, two) = operator.sent_in()
    assert {one.partition, two.partition} == {0, 1}
    for record in (one, two):
        number = int((record.key or b"")[1:])
        assert record.partition == number % 2
        assert record.value == b"\x00v"
        assert record.headers == [
            ("timer-topic", operator.orders.encode()),
            ("timer-delay", b"5s"),
            ("note", b"mended"),
            ("timer-first-origin", operator.origin(number).encode()),
        ]
    places = {f"{operator.ingress}/{r.partition}/{r.offset}" for r in (one, two)}
    assert {line["replayed_as"] for line in said.lines[:-1]} == places


def test_dry_run_changes_nothing(operator: Operator) -> None:
    operator.letters(3)
    edit = ("--set", f"timer-topic={operator.orders}")
    said = operator.say("replay", "--dry-run", *edit)
    assert said.code == 0
    assert f"deliver to {operator.orders}, at once" in said.out
    assert "Would replay 3 of 3 letters:" in said.out
    said = operator.say("replay", "--dry-run", "--json", *edit)
    assert said.lines[-1]["would_replay"] == 3
    assert operator.sent_in() == []
    topics = admin_client(operator.kafka).list_topics(timeout=WITHIN_S).topics
    assert operator.marks not in topics


def test_letter_that_was_replayed_stays_until_asked_again(operator: Operator) -> None:
    operator.letters(3)
    assert operator.replay("--limit", "1").lines[-1]["replayed"] == 1
    said = operator.replay()
    assert said.code == 0
    assert said.lines[-1] == {"replayed": 2, "stayed": {"already-replayed": 1}, "stopped": False}
    assert operator.replay().lines[-1]["replayed"] == 0
    assert times_sent(operator) == {b"k0": 1, b"k1": 1, b"k2": 1}
    assert operator.replay("0/1", "--again").lines[-1]["replayed"] == 1
    assert times_sent(operator) == {b"k0": 1, b"k1": 2, b"k2": 1}


def test_list_and_show_say_when_and_as_what_a_letter_was_replayed(operator: Operator) -> None:
    operator.letters(3)
    (done, _) = operator.replay("0/1").lines
    operator.await_marks(1)
    listed = {line["key"]: line for line in operator.say("list", "--json").lines}
    assert listed["k1"]["replayed_as"] == done["replayed_as"]
    assert abs(listed["k1"]["replayed_ms"] - listed["k1"]["written_ms"]) < 120_000
    assert listed["k0"]["replayed_as"] is None
    assert f"as {done['replayed_as']}" in operator.say("show", "0/1").out


def test_filters_and_places_choose_what_is_replayed(operator: Operator) -> None:
    operator.letters(4)
    operator.write(
        [Outgoing(b"x", b"", letter_headers("too-large", "big", f"{operator.ingress}/0/9"))]
    )
    assert operator.replay("--reason", "too-large").lines[-1]["replayed"] == 1
    assert operator.replay("--origin", f"{operator.ingress}/1/*").lines[-1]["replayed"] == 2
    assert operator.replay("0/0", operator.origin(0), "0/0").lines[-1]["replayed"] == 1
    assert times_sent(operator) == {b"x": 1, b"k1": 1, b"k3": 1, b"k0": 1}


def test_strangers_record_stays_and_nobody_has_to_mind(operator: Operator) -> None:
    operator.write([Outgoing(b"stranger", b"", [("timer-topic", operator.orders.encode())])])
    said = operator.replay()
    assert said.code == 0
    assert said.lines[-1] == {"replayed": 0, "stayed": {"not-a-dead-letter": 1}, "stopped": False}
    assert operator.sent_in() == []


def test_what_would_be_rejected_again_stays_and_the_exit_code_says_so(operator: Operator) -> None:
    operator.letters(2)
    said = operator.say("replay", "--yes")
    assert said.code == 1
    assert "2 target-refused: secret-orders is denied by the setting targets.deny" in said.out
    said = operator.say("replay", "--yes", "--set", "timer-topic=nobody-made-this")
    assert said.code == 1
    assert "target-unknown: the topic nobody-made-this does not exist" in said.out
    said = operator.replay("--set", "timer-partition=7")
    assert said.lines[-1]["stayed"] == {"partition-bad": 2}
    assert operator.sent_in() == []


def test_no_letter_goes_twice_when_a_replay_is_killed_half_way(operator: Operator) -> None:
    operator.letters(60)
    edit = ("--set", f"timer-topic={operator.orders}")
    for already in (0, 10, 20):
        process = operator.start("replay", "--yes", "--rate", "20/s", *edit)
        wait_for(partial(_has_sent, operator, already + 5), WITHIN_S, "a part to go")
        process.kill()
        process.communicate()
    assert operator.replay().code == 0
    assert times_sent(operator) == {b"k%d" % number: 1 for number in range(60)}


def test_batch_that_was_open_when_its_replay_was_killed_is_undone_and_goes_once(
    operator: Operator,
) -> None:
    """It is killed before the commit. The next replay fences it and starts from the marks."""
    operator.letters(5)
    script = (
        "import os\n"
        "from proxy.dead_letters.replay import Replayer\n"
        "Replayer._commit = lambda self, letters: os.kill(os.getpid(), 9)\n"
        "from proxy.cli.app import main\n"
        "main()\n"
    )
    killed = operator.run_python(script, "dead-letters", "replay", "--yes", *operator.edit)
    assert killed == -signal.SIGKILL
    assert sent_by_now(operator) == 0
    said = operator.replay()
    assert said.lines[-1]["replayed"] == 5
    assert times_sent(operator) == {b"k%d" % number: 1 for number in range(5)}


def test_no_letter_goes_twice_when_two_replay_at_once(operator: Operator) -> None:
    operator.letters(100)
    slow = operator.start("replay", "--yes", "--rate", SLOWLY, *operator.edit)
    await_begun(operator, slow)
    assert operator.replay().code == 0
    _, err = slow.communicate(timeout=WITHIN_S)
    assert slow.returncode == 1
    assert "Another replay from" in err
    assert "No letter was replayed by both" in err
    assert "defect" not in err
    assert times_sent(operator) == {b"k%d" % number: 1 for number in range(100)}


def test_interrupted_replay_finishes_its_batch_and_says_what_is_done(operator: Operator) -> None:
    operator.letters(100)
    process = operator.start("replay", "--yes", "--rate", SLOWLY, *operator.edit)
    await_begun(operator, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, err) == (1, "")
    assert f"Replayed {len(operator.sent_in())} letters" in out
    assert "continues where this one stopped" in out


def test_letters_that_die_again_while_they_are_replayed_are_not_replayed_in_the_same_run(
    operator: Operator,
) -> None:
    operator.letters(40)
    process = operator.start("replay", "--yes", "--rate", "20/s", *operator.edit)
    await_begun(operator, process)
    operator.write([operator.letter(40 + number) for number in range(20)])
    process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert len(operator.sent_in()) == 40


def test_value_too_large_for_the_dead_letter_topic_is_fetched_from_the_ingress(
    operator: Operator,
) -> None:
    write(operator.kafka, operator.ingress, [Outgoing(b"k0", b"huge", OWN, 0)])
    operator.letters(1, value=None)
    operator.write([Outgoing(b"k9", None, letter_headers(origin=f"{operator.ingress}/0/9"))])
    said = operator.replay()
    assert said.code == 1
    assert said.lines[-1] == {"replayed": 1, "stayed": {"original-gone": 1}, "stopped": False}
    (_, again) = operator.sent_in(2)
    assert (again.key, again.value) == (b"k0", b"huge")


def test_record_that_the_ingress_does_not_take_holds_back_no_other(kafka: str) -> None:
    operator = Operator(kafka, ingress_config={"max_message_bytes": "2000"})
    operator.letters(3)
    operator.write([operator.letter(3, value=os.urandom(3_000)), operator.letter(4)])
    said = operator.replay()
    assert said.code == 1
    assert said.lines[-1] == {"replayed": 4, "stayed": {"ingress-refused": 1}, "stopped": False}
    assert times_sent(operator) == {b"k%d" % number: 1 for number in (0, 1, 2, 4)}


def test_topic_of_marks_is_compacted_and_one_that_forgets_is_refused(operator: Operator) -> None:
    operator.letters(1)
    operator.create(operator.marks)
    said = operator.replay()
    assert said.code == 1
    assert f"Error: The topic {operator.marks} records which dead letters were replayed" in said.err
    assert "Set its cleanup.policy to compact" in said.err
    assert operator.sent_in() == []


def test_marks_topic_is_not_created_where_topics_may_not_be(operator: Operator) -> None:
    operator.letters(1)
    edit = operator.edit
    said = operator.say("replay", "--yes", *edit, DELAY_PROXY_TOPICS__CREATE="false")
    assert said.code == 1
    assert f"The topic {operator.marks}, which records the replays" in said.err
    operator.create(operator.marks, cleanup_policy="compact")
    assert operator.say("replay", "--yes", *edit, DELAY_PROXY_TOPICS__CREATE="false").code == 0


def test_dead_letter_topic_made_anew_begins_without_marks(operator: Operator) -> None:
    operator.letters(2)
    assert operator.replay().lines[-1]["replayed"] == 2
    admin = admin_client(operator.kafka)
    admin.delete_topics([operator.dead_letters])[operator.dead_letters].result(WITHIN_S)

    def is_made_anew() -> bool:
        try:
            operator.create(operator.dead_letters)
        except KafkaException:
            return False
        return True

    wait_for(is_made_anew, WITHIN_S, "the old topic to go")
    operator.letters(1)
    assert operator.replay().lines[-1]["replayed"] == 1
    marks = read_to_end(operator.kafka, operator.marks, 5)
    assert sum(mark.value is None for mark in marks) == 2


def test_ingress_that_is_not_there_is_a_sentence(operator: Operator) -> None:
    operator.letters(1)
    said = operator.say("replay", "--yes", DELAY_PROXY_TOPICS__INGRESS="nobody-has-this")
    assert said.code == 1
    assert "The topic nobody-has-this does not exist" in said.err


@pytest.fixture
def installed(kafka: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(kafka, tmp_path)
    yield made
    made.close()


def test_record_for_a_denied_target_is_mended_replayed_and_delivered_once(
    installed: Installation, tmp_path: Path
) -> None:
    orders = installed.target()
    secret = new_topic(installed.bootstrap, "secret")
    proxy = installed.proxy(targets={"deny": ["secret-*"]})
    proxy.start_ready()
    asked = [("timer-topic", secret.encode()), ("timer-delay", b"200ms"), ("trace", b"7")]
    installed.send([Outgoing(b"k", b"v", asked)])
    (letter,) = read_to_end(installed.bootstrap, installed.dead_letters, 1)
    origin = letter.header("timer-origin") or b""
    operator = Operator(installed.bootstrap)
    operator.settings_file = proxy.folder / "proxy.yaml"
    edit = ("--set", f"timer-topic={orders}")
    for times in (1, 0):
        said = operator.say("replay", "--yes", "--json", *edit, origin.decode())
        assert said.code == 0
        assert said.lines[-1]["replayed"] == times
    (record,) = read_to_end(installed.bootstrap, orders, 1)
    assert (record.key, record.value, record.header("trace")) == (b"k", b"v", b"7")
    assert record.header("timer-origin") != origin
    sent = read_to_end(installed.bootstrap, installed.ingress, 2)
    assert [one.header("timer-first-origin") for one in sent].count(origin) == 1
    installed.await_ends(2)
    assert len(read_to_end(installed.bootstrap, orders, 1)) == 1
