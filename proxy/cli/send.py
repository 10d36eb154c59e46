"""`send`: one record to the ingress topic, from the shell."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from confluent_kafka import Message, Producer

from proxy.cli.connection import Connection, client_config, explain, explained
from proxy.cli.options import AsJson, Bootstrap, Config, settings_for
from proxy.cli.output import say, say_json, shown_duration, shown_time
from proxy.clock import wall_clock_ms
from proxy.errors import BrokerUnreachable
from proxy.headers import DELAY, DELIVER_AT, LEVEL, TOPIC
from proxy.settings import Settings
from proxy.times import parse_delay_ms, parse_instant_ms

Headers = list[tuple[str, bytes]]


def send(
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where it should appear.")],
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
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send one record that appears in its topic later. Without a time it appears at once."""
    headers = request_headers(topic, delay, deliver_at, level) + user_headers(header or [])
    settings = settings_for(config, bootstrap)
    report = send_one(settings, key, value, headers)
    timestamp_ms = report.timestamp()[1]
    due_ms = _due_ms(settings, timestamp_ms, delay, deliver_at, level)
    origin = f"{report.topic()}/{report.partition()}/{report.offset()}"
    if as_json:
        say_json({"origin": origin, "topic": topic, "due_ms": due_ms})
        return
    wait_ms = due_ms - wall_clock_ms()
    when = f"{shown_time(due_ms)}, in {shown_duration(wait_ms)}" if wait_ms > 0 else "at once"
    say(f"sent as {origin}; due in {topic}: {when}")


def request_headers(
    topic: str, delay: str | None, deliver_at: str | None, level: int | None
) -> Headers:
    """The headers that ask for the delivery. Raises a usage error when they contradict."""
    asked = [
        (name, str(text).encode())
        for name, text in ((DELIVER_AT, deliver_at), (DELAY, delay), (LEVEL, level))
        if text is not None
    ]
    if len(asked) > 1:
        raise typer.BadParameter("give one of --delay, --deliver-at and --level")
    try:
        if delay is not None:
            parse_delay_ms(delay)
        if deliver_at is not None:
            parse_instant_ms(deliver_at)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return [(TOPIC, topic.encode()), *asked]


def user_headers(texts: Sequence[str]) -> Headers:
    """`name=value` each; raises a usage error for one without a name."""
    headers = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is no header: write name=value")
        headers.append((name, value.encode()))
    return headers


def send_one(settings: Settings, key: str | None, value: str | None, headers: Headers) -> Message:
    """Produce to the ingress topic and wait for the broker's receipt.

    Raises TopicUnknown, BrokerUnreachable or BrokerRefused.
    """
    ingress = settings.topics.ingress
    Connection(settings).describe_topic(ingress)
    with explained(settings):
        producer = Producer(
            client_config(settings, acks="all", enable_idempotence=True, linger_ms=0)
        )
    reports: list[tuple[Any, Message]] = []
    producer.produce(
        ingress,
        key=key,
        value=value,
        headers=list(headers),
        on_delivery=lambda error, message: reports.append((error, message)),
    )
    producer.flush(Connection.limit_s)
    if not reports:
        raise BrokerUnreachable(settings.bootstrap_servers, "it did not confirm the record")
    error, message = reports[0]
    if error is not None:
        raise explain(error, settings)
    return message


def _due_ms(
    settings: Settings,
    timestamp_ms: int,
    delay: str | None,
    deliver_at: str | None,
    level: int | None,
) -> int:
    if deliver_at is not None:
        return parse_instant_ms(deliver_at)
    if delay is not None:
        return timestamp_ms + parse_delay_ms(delay)
    if level:
        return timestamp_ms + settings.levels_ms[min(level, len(settings.levels_ms)) - 1]
    return timestamp_ms
