"""One session with the broker: a consumer, a transactional producer, and the shards they own.

Nothing of a session outlives it: when anything about a transaction is uncertain it is dropped
as a whole, and the next one recovers its shards from the broker
(docs/exactly-once.md#6-commits-of-unknown-outcome).
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

import structlog

from proxy.admin.query_mailbox import QueryMailbox
from proxy.kafka.group import UnassignedPartitions
from proxy.kafka.topics import TopicWatch
from proxy.publishing.kafka_transactions import SessionLost
from proxy.session.assembly import Parts
from proxy.session.clock_watch import ClockWatch
from proxy.session.limits import FreedMemory
from proxy.session.pipeline import Pipeline
from proxy.session.reporter import Reporter

LOOK_EVERY_S: Final = 0.25
LATEST_LOOK_S: Final = 0.75
PAUSE_PER_LOOK: Final = 10
"""So many times as long as a look takes none begins, but for LATEST_LOOK_S at most, since what is
shown should be no older than a second: at a thousand shards a look takes tens of milliseconds."""

log = structlog.get_logger(__name__)


class Session:
    """Joins the group and turns the pipeline until told to stop, or until an error ends it."""

    def __init__(
        self,
        parts: Parts,
        mailbox: QueryMailbox,
        reporter: Reporter,
        unassigned: UnassignedPartitions,
        clock_watch: ClockWatch,
        ingress_topic: TopicWatch,
        joined: Callable[[str], None] | None = None,
    ) -> None:
        """`joined` is called with the member id of the group's member."""
        self._settings_topic, self._release = parts.settings_topic, parts.release
        self._rate = parts.rate
        self._ingress, self._lookup = parts.ingress, parts.lookup
        self._publisher, self._pipeline = parts.publisher, parts.pipeline
        self._mailbox, self._reporter, self._unassigned = mailbox, reporter, unassigned
        self._clock_watch, self._ingress_topic = clock_watch, ingress_topic
        self._joined, self._freed_memory = joined, FreedMemory()
        self._next_look_s = 0.0

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Join, turn until stopped, then leave; after an error leave as things are."""
        try:
            self._join()
            while not is_stopping():
                self._turn()
            self._leave()
        except BaseException:
            self._drop()
            raise

    def _join(self) -> None:
        """What is paused, or due by a clock that is ahead, must not be let go by the first turn."""
        self._clock_watch.begin()
        self._settings_topic.catch_up()
        self._apply_controls()
        self._ingress.join(_Owner(self._pipeline), self._joined)

    def _turn(self) -> None:
        self._pipeline.turn()
        timed = self._pipeline.steps.timed
        if not self._mailbox.is_empty:
            timed("answer", self._answer)
        if self._pipeline.is_lost:
            raise SessionLost("the group has given this member's partitions away")
        if (began_s := time.monotonic()) >= self._next_look_s:
            timed("look", self._look_around)
            took_s = time.monotonic() - began_s
            pause_s = max(LOOK_EVERY_S, took_s * PAUSE_PER_LOOK)
            self._next_look_s = began_s + min(pause_s, LATEST_LOOK_S)

    def _answer(self) -> None:
        pipeline = self._pipeline
        self._mailbox.answer_one(lambda: pipeline.shards, is_busy=pipeline.is_busy)

    def _leave(self) -> None:
        """Closing the consumer hands the shards over, which needs the producer."""
        for close in self._closings:
            close()

    @property
    def _closings(self) -> tuple[Callable[[], None], ...]:
        """In their order."""
        return (
            self._ingress.close,
            self._lookup.close,
            self._settings_topic.close,
            self._clock_watch.close,
        )

    def _drop(self) -> None:
        """After an error no transaction is attempted any more; what fails here keeps nothing open.

        The producer goes first: one that lives on would still send what it has in hand.
        """
        with ExitStack() as last_first:
            for close in reversed(self._closings):
                last_first.callback(close)
            last_first.callback(self._pipeline.abandon)
            last_first.callback(self._publisher.close)

    def _look_around(self) -> None:
        if self._ingress_topic.is_another():
            raise SessionLost("the ingress topic was deleted and created anew")
        if self._settings_topic.look():
            self._apply_controls()
        self._clock_watch.look()
        self._reporter.report()
        self._unassigned.look()
        self._lookup.stop_if_idle()
        read_to = sum(shard.next_offset for shard in self._pipeline.shards.values())
        is_busy = self._pipeline.is_busy
        self._freed_memory.look(time.monotonic(), read_to, is_busy=is_busy)

    def _apply_controls(self) -> None:
        """What operators have set at run time counts from now on."""
        wanted, release = self._settings_topic, self._release
        before = self._set_at_run_time()
        release.pause(wanted.paused, wanted.resumed)
        release.limit(wanted.limits)
        self._rate.set(wanted.max_per_second)
        if before != (now := self._set_at_run_time()):
            log.info("set at run time", **now)
        if wanted.is_ingest_paused != self._pipeline.back_pressure.is_ingest_paused:
            self._pipeline.pause_ingest(wanted.is_ingest_paused)
            _log_ingest(is_paused=wanted.is_ingest_paused)

    def _set_at_run_time(self) -> Mapping[str, object]:
        release = self._release
        return {
            "paused": sorted(release.paused),
            "release_rates": release.release_rates,
            "limits": {name: one.model_dump() for name, one in release.limits.items()},
            "max_per_second": self._rate.set_at_run_time,
        }


def _log_ingest(*, is_paused: bool) -> None:
    if is_paused:
        log.warning(
            "taking in is paused by an operator: nothing more is read of the ingress, cancels, "
            "purges and rewritten records among it; what waits goes on being delivered",
            resume="kafka-delay-proxy resume --ingest",
        )
    else:
        log.info("taking in goes on")


class _Owner:
    """The pipeline, until it has lost partitions: from then on it takes none over."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.hand_over, self.lose = pipeline.hand_over, pipeline.lose

    def take_over(self, partitions: list[int]) -> dict[int, int]:
        """Nothing of a session that ends. The member may be evicted and back within one fetch, and
        its consumer then waits for the committed offsets in vain (librdkafka 2.16).
        """
        return {} if self._pipeline.is_lost else self._pipeline.take_over(partitions)
