"""`send`, `cancel`, `recall`, `commit` and `rollback`: one record to the ingress topic."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Annotated, Final, NamedTuple

import typer
from confluent_kafka import Consumer, KafkaException, Message, Producer

from proxy.cli.terminal import (
    AsJson,
    Bootstrap,
    Config,
    checked_delay_ms,
    checked_ident,
    checked_instant_ms,
    say,
    say_json,
    settings_for,
    shown_duration,
    shown_time,
)
from proxy.clock import wall_clock_ms
from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.dead_letters.letter import Origin, read_origin
from proxy.errors import BrokerLate, ProxyError
from proxy.kafka.access import Connection, TopicUnknown, client_config, explain, explained
from proxy.kafka.client_settings import connected, lookup_config
from proxy.kafka.control import (
    BY_KEY,
    PLACES_BY_KEY,
    ControlResult,
    Request,
    Unconfirmed,
    await_results,
    go_to_end,
    origin_of,
    write,
)
from proxy.kafka.ingress import NOT_IN_THE_LOG
from proxy.kafka.reader import IngressLookup
from proxy.kafka.topics import group_named_in
from proxy.protocol.body import Headers
from proxy.protocol.body import Message as IngressMessage
from proxy.protocol.headers import (
    ATTEMPT,
    CANCEL,
    CHECK_TOPIC,
    DELAY,
    DELIVER_AT,
    ID,
    KEY,
    LEVEL,
    RECALL,
    RETRY_GROUP,
    TOPIC,
    TRANSACTION,
)
from proxy.protocol.outcomes import MISSED, Rejection
from proxy.protocol.parsed import Prepare, Scheduled
from proxy.protocol.request_reader import RequestReader
from proxy.telemetry.collectors import LONG_PAST_MS


class ExpectedEnd(NamedTuple):
    """A delivery, or a rejection. Neither for a control record."""

    target: str | None
    due_ms: int | None
    rejection: Rejection | None


def named(ident: str, headers: Headers, key: bytes | None, value: bytes | None) -> Request:
    """Return a record keyed by its id, so that a cancel finds it. `timer-key` has its own key."""
    asked: Headers = [*headers, (ID, ident.encode()), (KEY, key)]
    return Request(asked, ident.encode(), value)


def cancel_of(ident: str, partition: int | None = None) -> Request:
    """Return the request that cancels the record with this id."""
    return _control([(CANCEL, ident.encode())], ident, partition)


def decision_on(ident: str, what: str, partition: int | None = None) -> Request:
    """Return the request that commits or rolls back a half message."""
    return _control([(TRANSACTION, what.encode()), (ID, ident.encode())], ident, partition)


def _control(headers: Headers, ident: str, partition: int | None) -> Request:
    chosen = BY_KEY if partition is None else partition
    return Request(headers, ident.encode(), None, chosen)


def recall_of(origin: Origin, key: bytes | None = None, ident: bytes | None = None) -> Request:
    """Return the recall of a record, proven by its key or id."""
    headers: Headers = [(RECALL, str(origin).encode())]
    if ident is not None:
        headers.append((ID, ident))
    return Request(headers, key, None, origin.partition)


def proven_recall(settings: Settings, origin: Origin) -> Request:
    """Read the record and return its recall, without a proof if the record is gone."""
    record = _read(settings, origin)
    if record is None:
        return recall_of(origin)
    return recall_of(origin, record.key(), dict(record.headers() or []).get(ID))


def _read(settings: Settings, origin: Origin) -> IngressMessage | None:
    topic, partition, offset = origin
    if partition >= len(Connection(settings).describe_topic(topic, "Read").partitions):
        return None
    lookup = IngressLookup(lambda: Consumer(lookup_config(settings)), topic, lambda: None)
    with closing(lookup):
        try:
            return lookup.read(partition, [offset], 0).get(offset)
        except KafkaException as error:
            if error.args[0].code() == NOT_IN_THE_LOG:
                return None
            raise explain(error.args[0], settings, topic, "Read") from None


def expected_end(record: Request, settings: Settings, timestamp_ms: int) -> ExpectedEnd:
    """Return what a proxy with these settings will do with a record."""
    policy = replace(policy_of(settings, None), roll_after_ms=None)
    parsed = RequestReader(policy).read(
        record.headers, record.key, record.value, timestamp_ms, 0, 0
    )
    if isinstance(parsed, Rejection):
        return ExpectedEnd(None, None, parsed)
    if not isinstance(parsed, Scheduled | Prepare):
        return ExpectedEnd(None, None, None)
    return ExpectedEnd(parsed.entry[2], parsed.due_ms, None)


class PartitionUnknown(ProxyError):
    """The named partition does not exist."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(
            f"The topic {topic} has no partition {partition}.",
            f"Name one from 0 to {partitions - 1}, as in the record's origin (topic/partition/"
            "offset), or leave --partition out if the record was keyed by its id.",
        )


def write_to_ingress(settings: Settings, record: Request) -> Message:
    """Write one record and wait for the broker's receipt. Raises ProxyError."""
    ingress = settings.topics.ingress
    partitions = len(Connection(settings).describe_topic(ingress, "Write").partitions)
    if record.partition >= partitions:
        raise PartitionUnknown(ingress, record.partition, partitions)
    with explained(settings):
        producer = Producer({**client_config(settings, acks="all"), **PLACES_BY_KEY})
    try:
        return write(connected(producer, ingress), ingress, record, Connection.limit_s)
    except Unconfirmed:
        unconfirmed = "it did not confirm the record, which may count all the same"
        raise BrokerLate(settings.bootstrap_servers, unconfirmed) from None
    except KafkaException as error:
        raise explain(error.args[0], settings, ingress, "Write") from None


def write_and_wait(
    settings: Settings, record: Request, named: str, limit_s: float
) -> ControlResult:
    """Write a control record about `named`, and wait for its outcome. Raises ProxyError."""
    outcomes = settings.topics.outcomes
    partitions = range(len(Connection(settings).describe_topic(outcomes, "Read").partitions))
    config = client_config(
        settings,
        group_id="kafka-delay-proxy-watch",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_wait_max_ms=50,
    )
    with explained(settings):
        consumer = Consumer(config)
    with closing(consumer):
        with explained(settings):
            go_to_end(consumer, outcomes, partitions, Connection.limit_s)
        origin = origin_of(write_to_ingress(settings, record))
        try:
            return await_results(consumer, [origin], limit_s, named)[0]
        except KafkaException as error:
            raise explain(error.args[0], settings, outcomes, "Read") from None


SET_BY: Final = {
    CANCEL: "the command `cancel`",
    RECALL: "the command `recall`",
    TRANSACTION: "`--prepare`, and the commands `commit` and `rollback`",
}


def send(
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Where it should appear.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="How long from now: 500ms 30s 5m 2h 7d.")
    ] = None,
    deliver_at: Annotated[
        str | None, typer.Option(help="When: epoch milliseconds, or RFC 3339 with a zone.")
    ] = None,
    level: Annotated[int | None, typer.Option(min=0, help="Delay level, 1 the shortest.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The record's key.")] = None,
    value: Annotated[str | None, typer.Option("--value", "-v", help="The record's value.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="A header, name=value; repeatable.")
    ] = None,
    ident: Annotated[
        str | None,
        typer.Option("--id", help="Name it, to replace or `cancel` it while it waits."),
    ] = None,
    retry_group: Annotated[
        str | None,
        typer.Option(help="It failed in this consumer group: to its retry topic, or --topic."),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=0, help="How often it failed there before.")
    ] = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="A half message: it waits for `commit` of its --id.")
    ] = False,
    check_topic: Annotated[
        str | None, typer.Option(help="Where to ask about an undecided half message.")
    ] = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send one record that appears in its topic later. Without a time it appears at once."""
    headers = [
        *retry_headers(topic, retry_group, attempt),
        *request_headers(topic, delay, deliver_at, level),
        *half_headers(ident, check_topic, is_half=prepare),
        *user_headers(header or []),
    ]
    raw_key, raw_value = (None if text is None else text.encode() for text in (key, value))
    record = Request(headers, raw_key, raw_value)
    if ident is not None:
        record = named(checked_ident(ident), headers, raw_key, raw_value)
    _send(settings_for(config, bootstrap), record, ident, as_json=as_json, is_half=prepare)


def _send(
    settings: Settings, record: Request, ident: str | None, *, as_json: bool, is_half: bool
) -> None:
    report = write_to_ingress(settings, record)
    expected = expected_end(record, settings, report.timestamp()[1])
    if as_json:
        shown = {"origin": origin_of(report), "topic": expected.target, "due_ms": expected.due_ms}
        shown["topic_exists"] = expected.target and _exists(expected.target, settings)
        if expected.rejection is not None:
            shown["error"] = expected.rejection.code
        say_json(shown if ident is None else {**shown, "id": ident})
    elif expected.rejection is not None:
        why = f"{expected.rejection.code}, {expected.rejection.detail}"
        say(f"sent as {origin_of(report)}; it will be a dead letter: {why}")
    else:
        when = _when(expected.due_ms or 0)
        waits = f", if it is committed: `commit {ident}`" if is_half else ""
        say(f"sent as {origin_of(report)}; due in {expected.target}: {when}{waits}")
        if expected.target and _is_to_be_made(expected.target, settings):
            tries = settings.retry.max_attempts
            say(
                f"The topic {expected.target} does not exist: create it by then. The proxy does "
                f"not; it tries {tries} times, later and later, then the record is a dead letter."
            )


def _is_to_be_made(topic: str, settings: Settings) -> bool:
    names = settings.topics
    is_made = names.create and group_named_in(topic, names) is not None
    return not is_made and _exists(topic, settings) is False


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
    return f"at once, for {shown_time(due_ms)} has passed (--deliver-at takes milliseconds)"


def request_headers(
    topic: str | None, delay: str | None, deliver_at: str | None, level: int | None
) -> Headers:
    """Return the headers for target and time. Raises a usage error."""
    asked: Headers = [
        (name, str(text).encode())
        for name, text in ((DELIVER_AT, deliver_at), (DELAY, delay), (LEVEL, level))
        if text is not None
    ]
    if len(asked) > 1:
        raise typer.BadParameter("give one of --delay, --deliver-at and --level")
    if delay is not None:
        checked_delay_ms(delay)
    if deliver_at is not None:
        checked_instant_ms(deliver_at)
    return asked if topic is None else [(TOPIC, topic.encode()), *asked]


def retry_headers(topic: str | None, group: str | None, attempt: int | None) -> Headers:
    """Return the headers of a record that a consumer group returns."""
    if group is None:
        if attempt is not None:
            raise typer.BadParameter("--attempt belongs to --retry-group: name the group")
        if topic is None:
            raise typer.BadParameter("say where: --topic, or --retry-group")
        return []
    return [(RETRY_GROUP, group.encode()), (ATTEMPT, str(attempt or 0).encode())]


def half_headers(ident: str | None, check_topic: str | None, *, is_half: bool) -> Headers:
    """Return the headers of a half message."""
    if not is_half:
        if check_topic is not None:
            raise typer.BadParameter("--check-topic belongs to --prepare")
        return []
    if ident is None:
        raise typer.BadParameter("--prepare needs an --id, by which it is committed")
    asked: Headers = [(TRANSACTION, b"prepare")]
    return asked if check_topic is None else [*asked, (CHECK_TOPIC, check_topic.encode())]


def user_headers(texts: Sequence[str]) -> Headers:
    """Parse `name=value`. Raises a usage error."""
    headers: Headers = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is no header: write name=value")
        if how := SET_BY.get(name):
            raise typer.BadParameter(f"{name} is set by {how}")
        headers.append((name, value.encode()))
    return headers


Ident = Annotated[str, typer.Argument(metavar="ID", help="The record's timer-id.")]
Partition = Annotated[
    int | None,
    typer.Option(min=0, help="Its ingress partition, where it was not keyed by its id."),
]
Wait = Annotated[str, typer.Option(help="How long to wait for the answer; 0: not at all.")]
DEFAULT_WAIT: Final = "5s"
SILENCE: Final = (
    "The proxy may not be running, or be behind: see `pending` and its /readyz. The request stands "
    "in the ingress and counts as soon as it is read."
)


def cancel(
    ident: Ident,
    partition: Partition = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take back what waits with this id. Exit code 1 where nothing did, or no answer came."""

    def applied(result: ControlResult) -> str:
        if result.ended is None:
            return f"applied: what waited with the id {ident} will not be delivered"
        due_ms = result.ended.get("due")
        due = "" if due_ms is None else f", due {shown_time(due_ms)},"
        return f"applied: {result.ended['origin']}{due} will not be delivered"

    settings, record = settings_for(config, bootstrap), cancel_of(checked_ident(ident), partition)
    _carry_out(settings, record, ident, wait, applied, as_json=as_json)


def recall(
    origin: Annotated[
        str, typer.Argument(metavar="ORIGIN", help="Where it was written: topic/partition/offset.")
    ],
    key: Annotated[
        str | None,
        typer.Option(help="The key that it has in the ingress; without: it is read there."),
    ] = None,
    ident: Annotated[
        str | None, typer.Option("--id", help="Its timer-id, in place of the key.")
    ] = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take back the record that was written there, with or without an id. The proxy asks for its
    key or id, which are read there. Exit code 1 where it had ended, or no answer came."""
    settings, place = settings_for(config, bootstrap), read_origin(origin)
    ingress = settings.topics.ingress
    if place is None or place.topic != ingress or str(place) != origin:
        raise typer.BadParameter(
            f"name where `send` wrote it: {ingress}/partition/offset, as the receipt says"
        )
    checked_delay_ms(wait)  # before the broker is asked for the record
    if key is None and ident is None:
        record = proven_recall(settings, place)
    else:
        by_id = None if ident is None else checked_ident(ident).encode()
        record = recall_of(place, None if key is None else key.encode(), by_id)
    applied = f"applied: {origin} will not be delivered"
    _carry_out(settings, record, origin, wait, lambda _: applied, as_json=as_json)


def commit(
    ident: Ident,
    partition: Partition = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let a half message be delivered. Exit code 1 where none was undecided, or no answer came."""
    settings = settings_for(config, bootstrap)
    record = decision_on(checked_ident(ident), "commit", partition)
    applied = (
        f"applied: the half message {ident} is delivered at its due, or now if that has passed"
    )
    _carry_out(settings, record, ident, wait, lambda _: applied, as_json=as_json)


def rollback(
    ident: Ident,
    partition: Partition = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Drop a half message. Exit code 1 where none was undecided, or no answer came."""
    settings = settings_for(config, bootstrap)
    record = decision_on(checked_ident(ident), "rollback", partition)
    applied = f"applied: the half message {ident} will not be delivered"
    _carry_out(settings, record, ident, wait, lambda _: applied, as_json=as_json)


def _carry_out(
    settings: Settings,
    record: Request,
    named: str,
    wait: str,
    applied: Callable[[ControlResult], str],
    *,
    as_json: bool,
) -> None:
    limit_s = checked_delay_ms(wait) / 1000
    if not limit_s:
        result = ControlResult(origin_of(write_to_ingress(settings, record)))
    else:
        result = write_and_wait(settings, record, named, limit_s)
    if as_json:
        about = "recalls" if RECALL in dict(record.headers) else "id"
        say_json({about: named, **result._asdict(), "detail": result.detail or ""})
    elif result.exit_code == 0:
        say(applied(result))
    else:
        say(_not_applied(result, named, record, limit_s))
    raise typer.Exit(result.exit_code if limit_s else 0)


def _not_applied(result: ControlResult, named: str, record: Request, limit_s: float) -> str:
    if result.outcome == MISSED:
        why = result.detail or "nothing pends with this id"
        return f"missed: {why}: {named} (asked as {result.origin}).{_where_else(record)}"
    if result.outcome is not None:
        return f"{result.outcome}: {result.detail or ''} (asked as {result.origin})"
    if not limit_s:
        return f"written as {result.origin}; not waited for"
    waited = shown_duration(round(limit_s * 1000))
    return f"no answer to {result.origin} within {waited}. {SILENCE}"


def _where_else(record: Request) -> str:
    """Ids are unique per ingress partition, so the record may lie in another one."""
    if record.partition >= 0:
        return ""
    return " If the record was not keyed by its id, name its ingress partition: --partition."
