"""`send`, `cancel`, `recall`, `commit` and `rollback`: one record to the ingress topic."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import typer
from confluent_kafka import Consumer, KafkaException, Message, Producer

from proxy.cli.terminal import (
    AtBroker,
    argument,
    checked_delay_ms,
    checked_ident,
    checked_instant_ms,
    find_by_id,
    flag,
    option,
    say,
    say_json,
    shown_duration,
    shown_time,
)
from proxy.cli.watch import open_consumer
from proxy.clock import wall_clock_ms
from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.dead_letters.letter import Origin, read_origin
from proxy.errors import BrokerLate, BrokerRefused, ProxyError
from proxy.kafka.access import Connection, TopicUnknown, client_config, explain, explained
from proxy.kafka.client_settings import connected, lookup_config
from proxy.kafka.control import (
    BY_KEY,
    PLACES_BY_KEY,
    ControlResult,
    Request,
    Unconfirmed,
    await_results,
    origin_of,
    write,
)
from proxy.kafka.ingress import NOT_IN_THE_LOG
from proxy.kafka.reader import IngressLookup
from proxy.kafka.topics import group_named_in
from proxy.protocol import headers as names
from proxy.protocol.body import Headers
from proxy.protocol.outcomes import MISSED, Rejection
from proxy.protocol.parsed import Prepare, Scheduled
from proxy.protocol.request_reader import RequestReader
from proxy.telemetry.collectors import LONG_PAST_MS

SET_BY: Final = {
    names.CANCEL: "the command `cancel`",
    names.RECALL: "the command `recall`",
    names.TRANSACTION: "`--prepare`, and the commands `commit` and `rollback`",
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request, and the record to deliver."""

    topic: str | None = option("The target topic.", "--topic", "-t")
    delay: str | None = option("Deliver after this time: 500ms 30s 5m 2h 7d.")
    deliver_at: str | None = option(
        "Deliver at this time: epoch milliseconds, or RFC 3339 with a zone."
    )
    level: int | None = option("Delay level. 1 is the shortest.", min=0)
    key: str | None = option("The record's key.", "--key", "-k")
    value: str | None = option("The record's value.", "--value", "-v")
    header: list[str] | None = option("A header: name=value. Repeatable.", "--header", "-H")
    ident: str | None = option(
        "The record's id. While the record is pending, the id can replace or `cancel` it.",
        "--id",
        parser=checked_ident,
    )
    retry_group: str | None = option(
        "Send a record that failed in this consumer group. It goes to --topic, "
        "or to the group's retry topic."
    )
    attempt: int | None = option("Number of earlier failures in --retry-group.", min=0)
    prepare: bool = flag("Send a half message. It is delivered only after `commit` of its --id.")
    check_topic: str | None = option("Topic for check-backs about an undecided half message.")

    def record(self) -> Request:
        """Return the record for the ingress. Raises a usage error.

        A record with an id has the id as its key, so that a cancel finds it. `timer-key` then
        contains the given key."""
        self._refuse_contradictions()
        asked = {
            names.RETRY_GROUP: self.retry_group,
            names.ATTEMPT: None if self.retry_group is None else self.attempt or 0,
            names.TOPIC: self.topic,
            names.DELIVER_AT: self.deliver_at,
            names.DELAY: self.delay,
            names.LEVEL: self.level,
            names.TRANSACTION: "prepare" if self.prepare else None,
            names.CHECK_TOPIC: self.check_topic,
        }
        headers: Headers = [
            (name, str(value).encode()) for name, value in asked.items() if value is not None
        ]
        headers += map(_user_header, self.header or [])
        key, value = (None if text is None else text.encode() for text in (self.key, self.value))
        if self.ident is None:
            return Request(headers, key, value)
        raw_id = self.ident.encode()
        return Request([*headers, (names.ID, raw_id), (names.KEY, key)], raw_id, value)

    def _refuse_contradictions(self) -> None:
        times = [one for one in (self.delay, self.deliver_at, self.level) if one is not None]
        is_retry = self.retry_group is not None
        wrong = {
            "--attempt needs --retry-group": (self.attempt is not None and not is_retry),
            "give the target with --topic, or --retry-group": self.topic is None and not is_retry,
            "give only one of --delay, --deliver-at and --level": len(times) > 1,
            "--check-topic needs --prepare": (self.check_topic is not None and not self.prepare),
            "--prepare needs --id, because `commit` names the record by its id": (
                self.prepare and self.ident is None
            ),
        }
        for sentence, is_wrong in wrong.items():
            if is_wrong:
                raise typer.BadParameter(sentence)
        if self.delay is not None:
            checked_delay_ms(self.delay)
        if self.deliver_at is not None:
            checked_instant_ms(self.deliver_at)


def _user_header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not a header: write name=value")
    if how := SET_BY.get(name):
        raise typer.BadParameter(f"{name} is set by {how}")
    return name, value.encode()


def send(asked: Asked, to: AtBroker) -> None:
    """Send one record that is delivered later. Without a time it is delivered at once."""
    record, settings = asked.record(), to.settings
    report = write_to_ingress(settings, record)
    expected = expected_end(record, settings, report.timestamp()[1])
    target, rejection = expected.target, expected.rejection
    if to.as_json:
        shown = {"origin": origin_of(report), "topic": target, "due_ms": expected.due_ms}
        shown["topic_exists"] = target and _exists(target, settings)
        if rejection is not None:
            shown["error"] = rejection.code
        say_json(shown if asked.ident is None else {**shown, "id": asked.ident})
        return
    if rejection is not None:
        why = f"{rejection.code}, {rejection.detail}"
        say(f"sent as {origin_of(report)}; it will be a dead letter: {why}")
        return
    waits = f", if it is committed: `commit {asked.ident}`" if asked.prepare else ""
    say(f"sent as {origin_of(report)}; due in {target}: {_when(expected.due_ms or 0)}{waits}")
    topics = settings.topics
    is_made = topics.create and target and group_named_in(target, topics) is not None
    if target and not is_made and _exists(target, settings) is False:
        tries = settings.retry.max_attempts
        say(
            f"The topic {target} does not exist. Create it before the due, because the proxy does "
            f"not create it. Otherwise the record is a dead letter after {tries} publish attempts."
        )


class ExpectedEnd(NamedTuple):
    """How a record will end: a delivery, or a dead letter. For a control record all fields are
    None."""

    target: str | None
    due_ms: int | None
    rejection: Rejection | None


def expected_end(record: Request, settings: Settings, timestamp_ms: int) -> ExpectedEnd:
    """Return how a proxy with these settings will end a record."""
    policy = replace(policy_of(settings, None), roll_after_ms=None)
    parsed = RequestReader(policy).read(
        record.headers, record.key, record.value, timestamp_ms, 0, 0
    )
    if isinstance(parsed, Rejection):
        return ExpectedEnd(None, None, parsed)
    if not isinstance(parsed, Scheduled | Prepare):
        return ExpectedEnd(None, None, None)
    return ExpectedEnd(parsed.entry[2], parsed.due_ms, None)


def _exists(topic: str, settings: Settings) -> bool | None:
    try:
        Connection(settings).describe_topic(topic)
    except TopicUnknown:
        return False
    except ProxyError:
        return None
    return True


def _when(due_ms: int) -> str:
    wait_ms = due_ms - wall_clock_ms()
    if wait_ms > 0:
        return f"{shown_time(due_ms)}, in {shown_duration(wait_ms)}"
    if -wait_ms < LONG_PAST_MS:
        return "at once"
    return f"at once, because {shown_time(due_ms)} has passed (--deliver-at takes milliseconds)"


class PartitionUnknown(ProxyError):
    """The named partition does not exist."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(
            f"The topic {topic} has no partition {partition}.",
            f"Give a number from 0 to {partitions - 1}. The record's origin "
            "(topic/partition/offset) names the partition. Omit --partition if the record was "
            "keyed by its id.",
        )


def write_to_ingress(settings: Settings, record: Request) -> Message:
    """Write one record, and wait until the broker confirms it. Raises ProxyError."""
    ingress = settings.topics.ingress
    partitions = len(Connection(settings).describe_topic(ingress, "Write").partitions)
    if record.partition >= partitions:
        raise PartitionUnknown(ingress, record.partition, partitions)
    with explained(settings):
        producer = Producer({**client_config(settings, acks="all"), **PLACES_BY_KEY})
    try:
        return write(connected(producer, ingress), ingress, record, Connection.limit_s)
    except Unconfirmed:
        unconfirmed = "it did not confirm the record, which may be written"
        raise BrokerLate(settings.bootstrap_servers, unconfirmed) from None
    except KafkaException as error:
        raise explain(error.args[0], settings, ingress, "Write") from None


SILENCE: Final = (
    "Look whether the proxy runs and is not behind (`pending`, /readyz). The request is in the "
    "ingress and applies when the proxy reads it."
)


@dataclass(frozen=True, kw_only=True)
class Control(AtBroker):
    """Options of a control record."""

    wait: str = option("How long to wait for the answer. 0: do not wait.", default="5s")

    @property
    def limit_s(self) -> float:
        return checked_delay_ms(self.wait) / 1000

    def carry_out(
        self, record: Request, named: str, applied: Callable[[ControlResult], str]
    ) -> None:
        """Write a control record about `named` and print its outcome. Raises typer.Exit."""
        limit_s = self.limit_s
        if limit_s:
            result = _write_and_wait(self.settings, record, named, limit_s)
        else:
            result = ControlResult(origin_of(write_to_ingress(self.settings, record)))
        if self.as_json:
            about = "recalls" if names.RECALL in dict(record.headers) else "id"
            say_json({about: named, **result._asdict(), "detail": result.detail or ""})
        elif result.exit_code == 0:
            say(f"applied: {applied(result)}")
        elif result.outcome == MISSED:
            why = result.detail or "no record with this id is pending"
            where_else = (
                " If the record was not keyed by its id, give its ingress partition with "
                "--partition."
                if record.partition == BY_KEY
                else ""
            )
            say(f"missed: {why}: {named} (asked as {result.origin}).{where_else}")
        elif result.outcome is not None:
            say(f"{result.outcome}: {result.detail or ''} (asked as {result.origin})")
        elif limit_s:
            waited = shown_duration(round(limit_s * 1000))
            say(f"no answer to {result.origin} within {waited}. {SILENCE}")
        else:
            say(f"written as {result.origin}; did not wait for the answer")
        raise typer.Exit(result.exit_code if limit_s else 0)


def _write_and_wait(
    settings: Settings, record: Request, named: str, limit_s: float
) -> ControlResult:
    outcomes = settings.topics.outcomes
    with closing(open_consumer(settings, outcomes)) as consumer:
        origin = origin_of(write_to_ingress(settings, record))
        try:
            return await_results(consumer, [origin], limit_s, named)[0]
        except KafkaException as error:
            why = explain(error.args[0], settings, outcomes, "Read")
            raise BrokerRefused(
                f"The request is written as {origin} and takes effect, but its outcome cannot be "
                f"read. {why.found}",
                why.remedy,
            ) from None


@dataclass(frozen=True, kw_only=True)
class ById(Control):
    """Options of a control record that names a record by its id."""

    ident: str = argument("The record's timer-id.", metavar="ID", parser=checked_ident)
    partition: int | None = option(
        "The record's ingress partition, needed if the record was not keyed by its id.", min=0
    )

    def request(self, headers: Headers) -> Request:
        """Return the control record, with the id as its key."""
        partition = BY_KEY if self.partition is None else self.partition
        return Request(headers, self.ident.encode(), None, partition)

    def decide(self, decision: str, applied: str) -> None:
        """Write a decision on a half message. Raises typer.Exit."""
        raw_id = self.ident.encode()
        record = self.request([(names.TRANSACTION, decision.encode()), (names.ID, raw_id)])
        self.carry_out(record, self.ident, lambda _: f"the half message {self.ident} {applied}")


def cancel(asked: ById) -> None:
    """Cancel the pending record with this id.

    Exit code 1: no record with this id was pending, or no answer came."""

    def applied(result: ControlResult) -> str:
        if result.ended is None:
            return f"the pending record with the id {asked.ident} will not be delivered"
        due_ms = result.ended.get("due")
        due = "" if due_ms is None else f", due {shown_time(due_ms)},"
        return f"{result.ended['origin']}{due} will not be delivered"

    record = asked.request([(names.CANCEL, asked.ident.encode())])
    asked.carry_out(record, asked.ident, applied)


def commit(asked: ById) -> None:
    """Commit a half message, so that it is delivered.

    Exit code 1: no half message with this id was undecided, or no answer came."""
    asked.decide("commit", "will be delivered at its due time, or at once if this time has passed")


def rollback(asked: ById) -> None:
    """Roll back a half message, so that it is never delivered.

    Exit code 1: no half message with this id was undecided, or no answer came."""
    asked.decide("rollback", "will not be delivered")


@dataclass(frozen=True, kw_only=True)
class Recalled(Control):
    """Options of `recall`."""

    origin: str = argument(
        "The record's place in the ingress: topic/partition/offset.", metavar="ORIGIN"
    )
    key: str | None = option("The record's key in the ingress. Default: read it from the ingress.")
    ident: str | None = option(
        "The record's timer-id, instead of --key.", "--id", parser=checked_ident
    )


def recall(asked: Recalled) -> None:
    """Cancel the pending record at this place of the ingress, with or without an id.

    The record's key or id is the proof that you may cancel it. The command reads key and id from
    the ingress, unless you give one. Exit code 1: the record had ended, or no answer came."""
    settings, place = asked.settings, read_origin(asked.origin)
    ingress = settings.topics.ingress
    if place is None or place.topic != ingress or str(place) != asked.origin:
        raise typer.BadParameter(
            f"give the origin that `send` printed: {ingress}/partition/offset"
            + (f". {find_by_id(asked.origin)}" if place is None else "")
        )
    checked_delay_ms(asked.wait)  # a wrong --wait is reported before the broker is asked
    raw_key, raw_id = (None if text is None else text.encode() for text in (asked.key, asked.ident))
    if asked.key is None and asked.ident is None:
        raw_key, raw_id = _key_and_id(settings, place)
    headers: Headers = [(names.RECALL, asked.origin.encode())]
    if raw_id is not None:
        headers.append((names.ID, raw_id))
    record = Request(headers, raw_key, None, place.partition)
    asked.carry_out(record, asked.origin, lambda _: f"{asked.origin} will not be delivered")


def _key_and_id(settings: Settings, origin: Origin) -> tuple[bytes | None, bytes | None]:
    """Return key and id of the record, which serve as proof. Both are None if the record no longer
    exists."""
    topic, partition, offset = origin
    record = None
    if partition < len(Connection(settings).describe_topic(topic, "Read").partitions):
        lookup = IngressLookup(lambda: Consumer(lookup_config(settings)), topic, lambda: None)
        with closing(lookup):
            try:
                record = lookup.read(partition, [offset], 0).get(offset)
            except KafkaException as error:
                if error.args[0].code() != NOT_IN_THE_LOG:
                    raise explain(error.args[0], settings, topic, "Read") from None
    if record is None:
        return None, None
    return record.key(), dict(record.headers() or []).get(names.ID)
