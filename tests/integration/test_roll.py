"""Delays many times longer than the ingress retention, on a broker that deletes old segments."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.support.installation.installation import Installation
from tests.support.installation.story import Story
from tests.support.oracle.asked import Rules
from tests.support.oracle.ends import Ends
from tests.support.oracle.ingress_witness import IngressWitness
from tests.support.records import Headers, Outgoing
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

RETENTION_MS = 7_000
ROLL_AFTER_MS = 1_000
DELAY_MS = 3 * RETENTION_MS
DELETES_SOON = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
}
SHORT = {"retention.ms": str(RETENTION_MS), "segment.ms": "500"}
RACES, RACE_APART_MS = 300, 7
WINDOW_MS = [-200, *range(-20, 60, 2), 150, 300, 600]
DELETED_WITHIN_S = 180


@pytest.fixture
def installation(own_broker: StartBroker, tmp_path: Path) -> Iterator[Installation]:
    """Yield an ingress with a retention of seconds, on a broker that checks it often."""
    broker = own_broker(overrides=DELETES_SOON)
    made = Installation(broker.bootstrap_servers, tmp_path, 1, SHORT)
    yield made
    made.close()


@dataclass(frozen=True, slots=True)
class Race:
    """A record, and its cancel or successor during a rewrite."""

    ident: bytes
    begins_ms: int
    again_after_ms: int
    is_cancel: bool

    def timed(self, topic: str) -> Iterator[tuple[int, Outgoing]]:
        yield self.begins_ms, Outgoing(self.ident, b"old", _asking(topic, DELAY_MS, self.ident))
        headers: Headers = [("timer-cancel", self.ident)]
        if not self.is_cancel:
            headers = _asking(topic, 0, self.ident)
        yield self.begins_ms + self.again_after_ms, Outgoing(self.ident, b"new", headers)


def _asking(topic: str, delay_ms: int, ident: bytes) -> Headers:
    return [
        ("timer-topic", topic.encode()),
        ("timer-delay", b"%d" % delay_ms),
        ("timer-id", ident),
    ]


def _races() -> list[Race]:
    begin_ms = time.time_ns() // 1_000_000 + 100
    return [
        Race(
            b"race-%d" % number,
            begin_ms + number * RACE_APART_MS,
            ROLL_AFTER_MS + WINDOW_MS[number % len(WINDOW_MS)],
            is_cancel=number % 3 > 0,
        )
        for number in range(RACES)
    ]


def _tell(story: Story, topic: str) -> None:
    story.tell("plain", topic=topic, delay=f"{DELAY_MS}ms")
    story.tell("named", topic=topic, delay=f"{DELAY_MS}ms", id="named", key="k", partition="0")
    story.tell("half", topic=topic, delay=f"{DELAY_MS}ms", id="half", transaction="prepare")
    story.tell("its commit", id="half", transaction="commit")
    story.tell("taken back", topic=topic, delay="300d", id="taken back")
    story.send()


def test_record_outlives_its_retention_many_times_and_can_be_taken_back_at_any_moment(
    installation: Installation,
) -> None:
    """It is rewritten repeatedly while the broker deletes the copies. Then the proxy and its disk
    are lost. The broker's records are enough."""
    story = Story(installation, Rules(), roll_after=f"{ROLL_AFTER_MS}ms")
    topic = installation.target()
    story.proxy.start_ready()
    with installation.witness() as witness:
        _tell(story, topic)
        with installation.writer() as writer:
            writer.write_at(timed for race in _races() for timed in race.timed(topic))
        _await_deletion(witness, b"taken back")
        installation.keep_ingress()  # a new proxy may start slowly
        story.proxy.kill()
        shutil.rmtree(story.proxy.data_dir)
        story.proxy.start_ready()
        story.tell("cancel", cancel="taken back")
        story.end(witness=witness)
    for name in ("plain", "named", "half"):
        assert story.said(name)[-1] == "delivered"
        assert story.said(name).count("rolled") == len(story.said(name)) - 1
        assert len(story.said(name)) >= DELAY_MS // RETENTION_MS + 1
        assert story.waited_ms(name) == DELAY_MS
    assert story.said("taken back")[-1] == "cancelled"
    assert witness.start[0] > max(record.offset for record in witness.of(b"named")[:1])
    assert _windows(story.ends, witness) == {"before", "while", "after"}


def _await_deletion(witness: IngressWitness, ident: bytes) -> None:
    def is_gone() -> bool:
        seen = witness.of(ident)
        return len(seen) > 2 and witness.log_start() > seen[1].offset

    wait_for(is_gone, DELETED_WITHIN_S, "retention to delete what was rolled")


def _windows(ends: Ends, witness: IngressWitness) -> set[str]:
    found = set()
    for number in range(RACES):
        copies = [r for r in witness.of(b"race-%d" % number) if r.value == b"old"]
        again = next(r for r in witness.of(b"race-%d" % number) if r.value == b"new")
        last = copies[-1]
        said = ends.said[f"{_ingress(ends)}/{last.partition}/{last.offset}"][0]
        if said in ("cancelled", "replaced"):
            is_late = last.offset > again.offset
            found.add("while" if is_late else "before" if len(copies) == 1 else "after")
    return found


def _ingress(ends: Ends) -> str:
    return next(iter(ends.ingress)).split("/")[0]
