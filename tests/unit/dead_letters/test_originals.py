"""The original ingress record of a letter is read if it still exists."""

from functools import partial
from typing import Any, cast

from proxy.dead_letters.topics import Originals
from tests.support.dead_letters import a_letter, letter_headers
from tests.support.simulation.stand_in import INGRESS, StandInKafka, StandInReader


def originals(kafka: StandInKafka) -> Originals:
    partitions = {INGRESS: 2}
    new_reader = cast(Any, partial(StandInReader, kafka))
    return Originals(new_reader, lambda topic: partitions.get(topic, 0))


def test_original_is_found_at_the_origin() -> None:
    kafka = StandInKafka()
    for number in range(5):
        kafka.append(INGRESS, 1, b"k%d" % number, b"huge", [("timer-topic", b"orders")])
    found = originals(kafka).find(a_letter(headers=letter_headers(origin=f"{INGRESS}/1/3")))
    assert found == (b"k3", b"huge", [("timer-topic", b"orders")])


def test_original_that_is_not_there_any_more_is_none() -> None:
    """Retention may have deleted it, or its topic was recreated or deleted."""
    kafka = StandInKafka(log_starts={1: 2})
    for _ in range(5):
        kafka.append(INGRESS, 1)
    reader = originals(kafka)
    for origin in (f"{INGRESS}/1/1", f"{INGRESS}/1/9", f"{INGRESS}/7/1", "old.ingress/0/1", "junk"):
        assert reader.find(a_letter(headers=letter_headers(origin=origin))) is None
    assert reader.find(a_letter(headers=letter_headers(origin=f"{INGRESS}/1/4"))) is not None


def test_original_that_no_client_can_read_is_none_and_the_others_are_found() -> None:
    kafka = StandInKafka(unreadable={1: [(2, 4)]})
    for _ in range(5):
        kafka.append(INGRESS, 1)
    reader = originals(kafka)
    found = [
        reader.find(a_letter(headers=letter_headers(origin=f"{INGRESS}/1/{offset}"))) is not None
        for offset in range(5)
    ]
    assert found == [True, True, False, False, True]
