"""One session with the broker: a consumer, a transactional producer, and their shards.

An uncertain transaction ends the whole session, and the next one recovers its shards from the
broker (docs/exactly-once.md#6-commits-of-unknown-outcome).
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from proxy.admin.query_mailbox import QueryMailbox
from proxy.clock import Clock
from proxy.config.policy_from_settings import aging_after_ms, policy_of, refuse_unfit
from proxy.config.settings import Settings
from proxy.dispatch.refusals import Refusals
from proxy.dispatch.release_control import WorkerRateLimit, release_control
from proxy.errors import BrokerRefused
from proxy.kafka.broker_clock import STAMP_IT, BrokerClock, ClockAnswer, clock_producer_config
from proxy.kafka.client_settings import (
    admin_config,
    common_config,
    connected,
    consumer_config,
    listener_config,
    lookup_config,
    producer_config,
    session_timeout_ms,
)
from proxy.kafka.group import (
    Place,
    StaticMember,
    UnassignedPartitions,
    ask_in_thread,
    force_rebalance,
    group_members,
)
from proxy.kafka.log_ranges import RetentionWatch
from proxy.kafka.settings_topic import open_settings_topic
from proxy.kafka.topics import TopicWatch, describe_topic, ingress_config, retention_ms
from proxy.protocol.body import BODY_FORMAT
from proxy.publishing.kafka_transactions import CommitThread, SessionLost
from proxy.publishing.throttling import Throttling
from proxy.recovery.local_state import LocalState, say_if_too_few
from proxy.session.assembly import KafkaClients, Parts, assemble
from proxy.session.limits import FreedMemory
from proxy.session.pipeline import Pipeline, TraceCommitted
from proxy.session.reporter import AdminSide, Reporter
from storage.options import Options

log = structlog.get_logger(__name__)


# Nothing is delivered before the broker has told its time (docs/exactly-once.md#7-never-early).

ASK_EVERY_S: Final = 900.0
"""Two free-running clocks drift apart by a tenth of a second in this time."""
ASK_SOON_S: Final = 10.0
"""Interval while the clocks disagree. A corrected clock is believed after at most this time."""
WAIT_S: Final = 0.5


class ClockWatch:
    """Sets the broker's time in `clock`, and logs when the two disagree."""

    def __init__(
        self,
        broker: BrokerClock,
        clock: Clock,
        topic: str,
        heartbeat: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker, self._clock, self._topic = broker, clock, topic
        self._heartbeat, self._now_s = heartbeat, now_s
        self._asked_s = 0.0
        self._standing = "agrees"

    def begin(self) -> None:
        """Wait for the broker's time. Raises BrokerRefused, or KafkaException if asking again may
        help."""
        self._ask()
        while (answer := self._broker.answer(WAIT_S)) is None:
            self._heartbeat()
        if answer.error is not None:
            raise _explained(answer.error, self._topic)
        self._take(answer)
        self._say()

    def look(self) -> None:
        """Take an answer that has come, and ask when it is time. Called often."""
        answer = self._broker.answer()
        if answer is not None and answer.error is not None:
            log.warning("the broker's time is not known for now", error=answer.error.str())
        elif answer is not None:
            self._take(answer)
        every_s = ASK_SOON_S if self._disagrees() else ASK_EVERY_S
        if self._now_s() >= self._asked_s + every_s:
            self._ask()
        self._say()

    def close(self) -> None:
        self._broker.close()

    def _ask(self) -> None:
        self._asked_s = self._now_s()
        self._broker.ask()

    def _take(self, answer: ClockAnswer) -> None:
        self._clock.set_broker_time(answer.time)

    def _disagrees(self) -> bool:
        lead_ms = self._clock.lead_ms
        return lead_ms is not None and abs(lead_ms) > self._clock.max_step_ms

    def _say(self) -> None:
        lead_ms = self._clock.lead_ms
        standing = _standing(lead_ms, self._clock.max_step_ms)
        if standing == self._standing:
            return
        self._standing = standing
        if standing == "ahead":
            log.error(
                "clock ahead of the broker's: nothing fires before the broker's clock has reached "
                "its due",
                lead_ms=lead_ms,
                max_step_ms=self._clock.max_step_ms,
            )
        elif standing == "behind":
            log.error("clock behind the broker's: everything is late by as much", lead_ms=lead_ms)
        elif standing == "agrees":
            log.info("clock agrees with the broker's", lead_ms=lead_ms)
        else:
            log.warning(
                "clock not held against the broker's, whose topic keeps the producers' time: one "
                "that is ahead delivers early",
                topic=self._topic,
                remedy=STAMP_IT.format(self._topic),
            )


def _standing(lead_ms: int | None, max_step_ms: int) -> str:
    if lead_ms is None:
        return "unknown"
    if abs(lead_ms) <= max_step_ms:
        return "agrees"
    return "ahead" if lead_ms > 0 else "behind"


def _explained(error: KafkaError, topic: str) -> Exception:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return BrokerRefused(
            f"The proxy's user may not write to {topic}, which tells it the broker's time.",
            "Grant Write on the topic.",
        )
    return KafkaException(error)


LOOK_EVERY_S: Final = 0.25
LATEST_LOOK_S: Final = 0.75
PAUSE_PER_LOOK: Final = 10
"""The pause after a look, in multiples of its duration: tens of milliseconds at a thousand
shards."""


class Session:
    """A member of the group that turns the pipeline until told to stop, or until an error."""

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
        """Join, turn until stopped, then leave. After an error commit nothing more."""
        try:
            self._join()
            while not is_stopping():
                self._turn()
            self._leave()
        except BaseException:
            self._drop()
            raise

    def _join(self) -> None:
        """Join the group. Pauses and the broker's time must be known before the first turn."""
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
        """Close the parts. Closing the consumer hands the shards over, which needs the producer."""
        for close in self._closings:
            close()

    @property
    def _closings(self) -> tuple[Callable[[], None], ...]:
        return (
            self._ingress.close,
            self._lookup.close,
            self._settings_topic.close,
            self._clock_watch.close,
        )

    def _drop(self) -> None:
        """Close everything after an error, even if a close fails. The producer goes first: it would
        still send its queued records."""
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
        wanted, release = self._settings_topic.controls, self._release
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
    """The pipeline, until it has lost partitions. From then on it takes none over."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.hand_over, self.lose = pipeline.hand_over, pipeline.lose

    def take_over(self, partitions: list[int]) -> dict[int, int]:
        """Take over partitions, but none in a session that ends. The consumer of an evicted member
        that rejoins within one fetch waits for the committed offsets in vain (librdkafka 2.16)."""
        return {} if self._pipeline.is_lost else self._pipeline.take_over(partitions)


def open_session(
    settings: Settings,
    worker: int,
    clock: Clock,
    side: AdminSide,
    trace: TraceCommitted | None,
    refusals: Refusals,
    throttling: Throttling,
) -> Session:
    """Return a session that is ready to run. Raises SettingsError if the retention of the ingress
    is too short, InstanceConflict if another process of the same name is alive."""
    admin = AdminClient(admin_config(settings))
    members = partial(group_members, admin, settings.group_id)
    member = StaticMember(settings.instance_name, worker, settings.data_dir, members)
    member.refuse_twin(session_timeout_ms(settings) / 1000, side.board.heartbeat)
    kafka = _kafka_clients(settings, worker, admin, side, throttling)
    config = ingress_config(kafka.topic.name, admin)
    kept_ms = retention_ms(config)
    refuse_unfit(settings, config, kept_ms)
    policy = policy_of(settings, kept_ms)
    folders = _local_state(settings, kafka.topic.topic_id)
    parts = assemble(
        kafka,
        settings,
        policy,
        release_control(settings.release),
        WorkerRateLimit(settings.release.max_per_second),
        folders,
        clock,
        side.metrics,
        side.board.heartbeat,
        trace=trace,
        refusals=refusals,
        throttling=throttling,
    )
    side.metrics.show(
        ingress_partitions=kafka.topic.partitions,
        memory_budget_bytes=settings.memory.per_worker_bytes,
    )
    say_if_too_few(kafka.topic.partitions)
    age_ms = aging_after_ms(policy.roll_after_ms, kept_ms)
    retention = RetentionWatch(admin, kafka.topic.name, age_ms)
    reporter = Reporter(parts, clock, side, retention, folders)
    unassigned = _unassigned_partitions(settings, kafka.topic.partitions)
    watch = _clock_watch(settings, clock, side)

    def on_growth(partitions: int) -> None:
        side.metrics.show(ingress_partitions=partitions)
        say_if_too_few(partitions)
        unassigned.watch(_places(settings, partitions))
        parts.pipeline.share_rates_among(partitions)

    topic = TopicWatch(admin, kafka.topic, on_growth)
    return Session(parts, side.mailbox, reporter, unassigned, watch, topic, member.joined)


def _clock_watch(settings: Settings, clock: Clock, side: AdminSide) -> ClockWatch:
    topic = settings.topics.settings

    def new_producer() -> Producer:
        return connected(Producer(clock_producer_config(settings)), topic)

    broker = BrokerClock(new_producer, topic, settings.group_id)
    return ClockWatch(broker, clock, topic, side.board.heartbeat)


def _kafka_clients(
    settings: Settings, worker: int, admin: AdminClient, side: AdminSide, throttling: Throttling
) -> KafkaClients:
    ingress = settings.topics.ingress
    writing, reading = {"throttle_cb": throttling.written}, {"throttle_cb": throttling.read}

    def new_producer(number: int) -> Producer:
        config = producer_config(settings, worker, number) | writing
        return connected(Producer(config), ingress)

    return KafkaClients(
        describe_topic(ingress, admin, settings),
        open_settings_topic(settings, side.board.heartbeat),
        admin,
        new_producer,
        lambda: Consumer(consumer_config(settings, worker) | reading),
        lambda: Consumer(listener_config(settings) | reading),
        lambda: Consumer(lookup_config(settings) | reading),
        CommitThread,
    )


def _local_state(settings: Settings, topic_id: str) -> LocalState:
    return LocalState(
        settings.data_dir,
        settings.topics.ingress,
        topic_id,
        Options(
            precision_ms=settings.wheel.precision_ms,
            slots=settings.wheel.slots,
            body_format=BODY_FORMAT,
        ),
        settings.store,
        stores_stubs=settings.bodies == "kafka",
    )


def _unassigned_partitions(settings: Settings, partitions: int) -> UnassignedPartitions:
    group_id, ingress = settings.group_id, settings.topics.ingress
    return UnassignedPartitions(
        partial(ask_in_thread, common_config(settings), group_id),
        _places(settings, partitions),
        partial(force_rebalance, common_config(settings), group_id, ingress),
    )


def _places(settings: Settings, partitions: int) -> set[Place]:
    return {(settings.topics.ingress, number) for number in range(partitions)}
