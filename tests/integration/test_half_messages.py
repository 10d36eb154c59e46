"""Half messages on a real broker: decided, asked about, expired, killed between steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.installation.installation import Installation
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules
from tests.support.oracle.committed_reader import CommittedReader
from tests.support.records import Incoming

pytestmark = [pytest.mark.integration, pytest.mark.core]

IMMUNITY_MS, INTERVAL_MS, CHECKS = 500, 800, 3
SETTINGS = {
    "transactions": {
        "immunity": f"{IMMUNITY_MS}ms",
        "check_interval": f"{INTERVAL_MS}ms",
        "max_checks": CHECKS,
    }
}
DEFAULT_CHECKS, MANY_CHECKS = 15, 1_000


class Halves(Story):
    """Half messages of a story. The id of each is its name unless given."""

    def __init__(self, installation: Installation, checks: int = CHECKS) -> None:
        settings = {"transactions": {**SETTINGS["transactions"], "max_checks": checks}}
        rules = Rules(immunity_ms=IMMUNITY_MS, check_interval_ms=INTERVAL_MS, max_checks=checks)
        super().__init__(installation, rules, **settings)
        self.orders, self.checks = installation.target(), installation.check_topic()

    def prepare(self, name: str, **asked: str) -> None:
        given = {"topic": self.orders, "check_topic": self.checks, "id": name, **asked}
        self.ask(name, {**given, "transaction": "prepare"})

    def decide(self, name: str, what: str) -> None:
        self.tell(f"{what} {name}", id=name, transaction=what)

    def asked(self, name: str) -> list[Incoming]:
        about = [placed.record for placed in self.ends.checks]
        return [record for record in about if record.header("timer-id") == name.encode()]

    def await_check(self, count: int) -> list[Incoming]:
        with CommittedReader(self.installation.bootstrap) as reader:
            return [placed.record for placed in reader.read([self.checks], count)]


def _decided_at_once(told: Halves) -> None:
    told.prepare("committed")
    told.decide("committed", "commit")
    told.decide("committed", "commit")
    told.decide("committed", "rollback")
    told.prepare("undone")
    told.decide("undone", "rollback")
    told.decide("undone", "rollback")
    told.decide("undone", "commit")
    told.prepare("in time", delay="900ms")
    told.decide("in time", "commit")
    told.tell("nobody's", id="nobody", transaction="commit")
    told.tell("no half", topic=told.orders, id="no half", delay="800ms")
    told.decide("no half", "commit")


def _superseded(told: Halves) -> None:
    told.prepare("prepared twice")
    told.prepare("prepared twice")
    told.decide("prepared twice", "commit")
    told.prepare("written over")
    told.tell("the new one", topic=told.orders, id="written over", delay="10")
    told.decide("written over", "commit")
    told.prepare("cancelled")
    told.tell("its cancel", cancel="cancelled")
    told.decide("cancelled", "commit")
    told.prepare("cancelled late", delay="1h")
    told.decide("cancelled late", "commit")
    told.tell("late cancel", cancel="cancelled late")


def _undecided(told: Halves) -> None:
    told.prepare("forgotten", key="the key at the target")
    told.prepare("unasked", check_immunity="1ms")
    told.tell("not asked", topic=told.orders, id="not asked", transaction="prepare")
    told.prepare("nowhere", check_topic="nobody-made-this-check-topic")
    told.prepare("immune", check_immunity="5m")


@pytest.fixture(scope="module")
def halves(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Halves]:
    installation = Installation(kafka, tmp_path_factory.mktemp("halves"), partitions=1)
    told = Halves(installation)
    try:
        _decided_at_once(told)
        _superseded(told)
        told.proxy.start_ready()
        _undecided(told)
        told.send()
        told.await_check(1)
        told.decide("immune", "rollback")
        told.end()
        yield told
    finally:
        installation.close()


def test_committed_half_message_arrives_and_can_be_decided_once(halves: Halves) -> None:
    assert halves.said("committed") == ["delivered"]
    assert halves.said("commit committed") == ["applied", "missed"]
    assert halves.said("rollback committed") == ["missed"]


def test_half_message_that_was_rolled_back_never_arrives(halves: Halves) -> None:
    assert halves.said("undone") == ["rolled-back"]
    assert halves.said("rollback undone") == ["applied", "missed"]
    assert halves.said("commit undone") == ["missed"]


def test_half_message_with_a_delay_arrives_at_its_own_due(halves: Halves) -> None:
    assert (halves.said("in time"), halves.waited_ms("in time")) == (["delivered"], 900)


def test_half_message_committed_after_its_due_arrives_at_once_with_that_due(
    installation: Installation,
) -> None:
    """It is asked about at its due time. It does not expire before the answer, however late."""
    told = Halves(installation, MANY_CHECKS)
    told.proxy.start_ready()
    told.prepare("answered", delay="50ms")
    told.send()
    told.await_check(1)
    told.decide("answered", "commit")
    told.end()
    assert (told.said("answered"), told.waited_ms("answered")) == (["delivered"], 50)
    assert told.said("commit answered") == ["applied"]
    checks = [int(r.header("timer-check") or b"0") for r in told.asked("answered")]
    assert checks == list(range(1, len(checks) + 1))


def test_commit_of_what_was_never_prepared_misses(halves: Halves) -> None:
    assert halves.said("nobody's") == ["missed"]
    assert (halves.said("no half"), halves.said("commit no half")) == (["delivered"], ["missed"])


def test_second_prepare_or_any_record_with_the_id_replaces_a_half_message(
    halves: Halves,
) -> None:
    assert halves.said("prepared twice") == ["replaced", "delivered"]
    assert halves.said("commit prepared twice") == ["applied"]
    assert (halves.said("written over"), halves.said("the new one")) == (
        ["replaced"],
        ["delivered"],
    )
    assert halves.said("commit written over") == ["missed"]


def test_cancel_ends_a_half_message_undecided_or_committed(halves: Halves) -> None:
    assert (halves.said("cancelled"), halves.said("its cancel")) == (["cancelled"], ["applied"])
    assert halves.said("commit cancelled") == ["missed"]
    assert halves.said("cancelled late") == ["cancelled"]
    assert halves.said("late cancel") == ["applied"]


def test_undecided_half_message_is_asked_about_until_it_expires(halves: Halves) -> None:
    assert [r.header("timer-check") for r in halves.asked("forgotten")] == [b"1", b"2", b"3"]
    assert {r.key for r in halves.asked("forgotten")} == {b"the key at the target"}
    assert {r.header("name") for r in halves.asked("forgotten")} == {b"forgotten"}
    assert halves.said("forgotten") == ["expired"]
    assert halves.reasons("forgotten") == ["transaction-expired"]


def test_questions_come_after_the_immunity_and_in_their_interval(halves: Halves) -> None:
    """A message with a shorter immunity is asked about before an older one."""
    asked = [placed.record.header("timer-id") for placed in halves.ends.checks]
    assert asked.index(b"unasked") < asked.index(b"forgotten")
    assert halves.said("unasked") == ["expired"]
    assert halves.asked("immune") == []
    assert halves.said("immune") == ["rolled-back"]


def test_half_message_whose_producer_cannot_be_asked_expires_all_the_same(
    halves: Halves,
) -> None:
    assert halves.said("not asked") == ["expired"]
    assert halves.said("nowhere") == ["expired"]


def test_fifteen_checks_are_made_before_a_half_message_expires(
    installation: Installation,
) -> None:
    told = Halves(installation, DEFAULT_CHECKS)
    told.proxy.configure(
        installation.settings("one", transactions={"immunity": "50ms", "check_interval": "40ms"})
    )
    told.rules = Rules(immunity_ms=50, check_interval_ms=40, max_checks=DEFAULT_CHECKS)
    told.proxy.start_ready()
    told.prepare("forgotten")
    told.end()
    checks = [int(r.header("timer-check") or b"0") for r in told.asked("forgotten")]
    assert checks == list(range(1, DEFAULT_CHECKS + 1))
    assert told.said("forgotten") == ["expired"]


def test_proxy_killed_between_any_two_steps_loses_and_repeats_nothing(
    installation: Installation,
) -> None:
    told, patience = Halves(installation), "1h"
    told.prepare("at once", check_immunity=patience)
    told.prepare("later", check_immunity=patience, delay="6s")
    told.prepare("never", check_immunity=patience)
    told.prepare("forgotten")
    told.send()
    told.proxy.start_ready()
    installation.await_ingested()
    told.proxy.kill()
    told.proxy.start()
    told.await_check(1)
    told.proxy.kill()
    told.decide("later", "commit")
    told.decide("never", "rollback")
    told.send()
    told.proxy.start_ready()
    told.proxy.kill()
    told.proxy.start_ready()
    told.decide("at once", "commit")
    told.send()
    told.proxy.kill()
    told.proxy.start_ready()
    told.end()
    assert told.said("later") == told.said("at once") == ["delivered"]
    assert told.waited_ms("later") == 6_000
    assert told.said("never") == ["rolled-back"]
    assert told.said("forgotten") == ["expired"]
