"""`send`: one record to the ingress topic, from the shell."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from proxy.cli.kafka import IngressRecord, expected_end, named, origin_of, write_to_ingress
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
from proxy.config.settings import Settings
from proxy.errors import ProxyError
from proxy.kafka.access import Connection, TopicUnknown
from proxy.kafka.topics import group_named_in
from proxy.protocol.body import Headers
from proxy.protocol.headers import (
    ATTEMPT,
    CANCEL,
    CHECK_TOPIC,
    DELAY,
    DELIVER_AT,
    LEVEL,
    RECALL,
    RETRY_GROUP,
    TOPIC,
    TRANSACTION,
)
from proxy.telemetry.collectors import LONG_PAST_MS

SET_BY: Final = {
    CANCEL: "the command `cancel`",
    RECALL: "the command `recall`",
    TRANSACTION: "`--prepare`, and the commands `commit` and `rollback`",
}
"""Headers that act on another record than the one that is sent."""


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
    record = IngressRecord(headers, raw_key, raw_value)
    if ident is not None:
        record = named(checked_ident(ident), headers, raw_key, raw_value)
    _send(settings_for(config, bootstrap), record, ident, as_json=as_json, is_half=prepare)


def _send(
    settings: Settings, record: IngressRecord, ident: str | None, *, as_json: bool, is_half: bool
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
    """Whether somebody has to create the topic: those of consumer groups the proxy makes itself."""
    names = settings.topics
    is_made = names.create and group_named_in(topic, names) is not None
    return not is_made and _exists(topic, settings) is False


def _exists(topic: str, settings: Settings) -> bool | None:
    """Whether the topic is there; None where the broker does not say."""
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
    """The headers that say where and when. Raises a usage error when they contradict."""
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
    """The headers of a record that a consumer group gives back; none where there is no group."""
    if group is None:
        if attempt is not None:
            raise typer.BadParameter("--attempt belongs to --retry-group: name the group")
        if topic is None:
            raise typer.BadParameter("say where: --topic, or --retry-group")
        return []
    return [(RETRY_GROUP, group.encode()), (ATTEMPT, str(attempt or 0).encode())]


def half_headers(ident: str | None, check_topic: str | None, *, is_half: bool) -> Headers:
    """The headers of a half message; none for a whole one."""
    if not is_half:
        if check_topic is not None:
            raise typer.BadParameter("--check-topic belongs to --prepare")
        return []
    if ident is None:
        raise typer.BadParameter("--prepare needs an --id, by which it is committed")
    asked: Headers = [(TRANSACTION, b"prepare")]
    return asked if check_topic is None else [*asked, (CHECK_TOPIC, check_topic.encode())]


def user_headers(texts: Sequence[str]) -> Headers:
    """`name=value` each; raises a usage error for one without a name, or with its own command."""
    headers: Headers = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is no header: write name=value")
        if how := SET_BY.get(name):
            raise typer.BadParameter(f"{name} is set by {how}")
        headers.append((name, value.encode()))
    return headers
