"""Targets that refuse due records: retried, repaired, given up, without delay for others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from proxy.embedded import EmbeddedBroker
from tests.support.installation.installation import Installation
from tests.support.installation.rights import ASKING, allow
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

LEVELS = " ".join(["50ms"] * 3 + ["200ms"] * 2 + ["700ms"] * 8 + ["10s"] * 2)
"""Sixteen attempts in half a minute. This outlasts the cache of missing topics, and a repair on a
busy machine."""
ATTEMPTS = 16
SMALL_BYTES = 2_000
GOOD = 60
"""The last record is due well before the sixteenth attempt."""


class Failures(Story):
    """A story with missing, denied, too small and healthy targets."""

    def __init__(self, installation: Installation) -> None:
        rules = Rules(levels_ms=levels_ms(LEVELS))
        settings = {"levels": LEVELS, "retry": {"first_level": 1}}
        super().__init__(installation, rules, **settings)
        self.good, self.denied = installation.target("good"), installation.target("denied")
        self.allowed_later = installation.target("allowed-later")
        self.small = installation.target("small", config={"max.message.bytes": str(SMALL_BYTES)})
        self.made_later = f"{installation.name}.made-later"
        self.nowhere = f"{installation.name}.nowhere"

    def ask_all(self) -> None:
        self.tell("missing", topic=self.nowhere, delay="100ms", id="missing")
        self.tell("cancelled", topic=self.nowhere, id="cancelled")
        self.tell("replaced", topic=self.nowhere, id="replaced")
        self.tell("half", topic=self.made_later, id="half", transaction="prepare")
        self.tell("commit", id="half", transaction="commit")
        for number in range(GOOD):
            self.tell("good", topic=self.good, delay=f"{100 * number}ms")
            if number % 20 == 0:
                self.tell("denied", topic=self.denied)
                self.tell("allowed later", topic=self.allowed_later)
                self.tell("made later", topic=self.made_later, delay="200ms", key="k")
                self._tell_large()
        self.send()

    def _tell_large(self) -> None:
        large = self.record("too large", {"topic": self.small})
        self.tell_record(replace(large, value=bytes(2 * SMALL_BYTES)))

    def mend(self) -> None:
        self.installation.named_target(self.made_later)
        allow(self.installation.bootstrap, self.allowed_later, AclOperation.WRITE)
        self.tell("cancel", cancel="cancelled")
        self.tell("successor", topic=self.good, id="replaced")
        self.send()


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failures]:
    folder = tmp_path_factory.mktemp("failures")
    with EmbeddedBroker(folder / "broker", overrides=ASKING) as broker:
        installation = Installation(broker.bootstrap_servers, folder)
        told = Failures(installation)
        try:
            for topic in (told.denied, told.allowed_later):
                allow(installation.bootstrap, topic, AclOperation.READ)
            told.proxy.start_ready()
            told.ask_all()
            installation.await_ends(20)
            told.mend()
            told.end()
            yield told
        finally:
            installation.close()


def test_record_for_a_missing_topic_ends_after_sixteen_attempts(failures: Failures) -> None:
    assert failures.said("missing") == ["requeued"] * (ATTEMPTS - 1) + ["dead-lettered"]
    assert failures.reasons("missing") == ["target-unknown"]
    for attempt, detail in enumerate(failures.details("missing")[:-1], 1):
        assert detail.startswith("target-unknown: ")
        assert detail.endswith(f"attempt {attempt} of {ATTEMPTS}")


def test_record_for_a_topic_that_may_not_be_written_to_is_tried_as_often(
    failures: Failures,
) -> None:
    said = failures.said("denied")
    assert said.count("requeued") == 3 * (ATTEMPTS - 1)
    assert said.count("dead-lettered") == 3
    assert failures.reasons("denied") == ["not-authorised"] * 3


@pytest.mark.parametrize("name", ["made later", "allowed later", "half"])
def test_topic_that_was_mended_in_time_gets_its_records_by_a_retry(
    failures: Failures, name: str
) -> None:
    said = failures.said(name)
    assert set(said) == {"requeued", "delivered"}
    first = next(iter(failures.records(name)))
    origins = [r.header("timer-first-origin") for r in failures.delivered(name)]
    assert first.encode() in origins
    assert said.count("delivered") == len(set(origins)) == (1 if name == "half" else 3)


def test_record_too_large_for_its_topic_is_not_tried_again(failures: Failures) -> None:
    assert failures.reasons("too large") == ["too-large"] * 3
    assert failures.said("too large") == ["dead-lettered"] * 3


def test_record_that_is_tried_again_can_be_cancelled_and_replaced(failures: Failures) -> None:
    assert failures.said("cancelled")[-1] == "cancelled"
    assert failures.said("replaced")[-1] == "replaced"
    assert failures.said("successor") == ["delivered"]


def test_nothing_behind_what_fails_is_held_up(failures: Failures) -> None:
    arrived_ms = [record.timestamp_ms for record in failures.delivered("good")]
    assert len(arrived_ms) == GOOD
    assert max(arrived_ms) < min(letter.timestamp_ms for letter in failures.letters("denied"))


def test_dead_letter_whose_headers_its_topic_does_not_take_ends_with_origin_and_reason(
    installation: Installation,
) -> None:
    installation.create_dead_letters({"max.message.bytes": "2000"})
    target = installation.target()
    large = [("note", os.urandom(3_000))]
    good = [("timer-topic", target.encode()), ("timer-delay", b"1ms")]
    installation.send(
        [
            Outgoing(b"k", b"value", large),
            Outgoing(b"k", os.urandom(3_000), [("note", b"small")]),
            Outgoing(os.urandom(3_000), b"value", []),
            Outgoing(b"k", b"good", good),
        ]
    )
    installation.proxy().start_ready()
    ends = installation.judge()
    assert ends.counts == {"delivered": 1, "dead-lettered": 3}
    letters = [letter for found in ends.dead_letters.values() for letter in found]
    assert [letter.header("timer-error") for letter in letters] == [b"target-missing"] * 3
    assert sorted(letter.header("note") or b"" for letter in letters) == [b"", b"", b"small"]
    assert [letter.value for letter in letters] == [None] * 3
