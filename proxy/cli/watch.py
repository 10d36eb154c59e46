"""`watch`: each record as it arrives in a topic, and how late it is."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Annotated, Any

import typer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from proxy.cli.connection import (
    Connection,
    client_config,
    explain,
    explained,
    headers_of,
)
from proxy.cli.options import AsJson, Bootstrap, Config, settings_for
from proxy.cli.output import say, say_json, shown_bytes, shown_time
from proxy.cli.stopping import StopAsked, stop_raises
from proxy.clock import wall_clock_ms
from proxy.headers import DUE, ORIGIN
from proxy.settings import Settings


def watch(
    topic: Annotated[str, typer.Argument(help="The topic to read.")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Show what is there already, too.")
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many records.")] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Stop after so many seconds.")
    ] = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print each record that arrives, with its lateness against the time it was due."""
    settings = settings_for(config, bootstrap)
    with (
        suppress(StopAsked),
        stop_raises(),
        closing(open_consumer(settings, topic, from_beginning=from_beginning)) as consumer,
    ):
        if not as_json:
            say(f"watching {topic}; the second column is how late a record is (Ctrl-C ends)")
        for message in islice(_arrivals(consumer, settings, timeout_s), count):
            arrival = describe_arrival(message, wall_clock_ms())
            if as_json:
                say_json(arrival)
            else:
                say(_line(arrival, message))


def open_consumer(settings: Settings, topic: str, *, from_beginning: bool) -> Consumer:
    """A read_committed consumer of all partitions that joins no group and commits nothing."""
    description = Connection(settings).describe_topic(topic)
    with explained(settings):
        consumer = Consumer(
            client_config(
                settings,
                group_id="kafka-delay-proxy-watch",
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_wait_max_ms=50,
            )
        )
        partitions = [TopicPartition(topic, part.id) for part in description.partitions]
        for place in partitions:
            place.offset = OFFSET_BEGINNING
            if not from_beginning:
                place.offset = consumer.get_watermark_offsets(place, Connection.limit_s)[1]
        consumer.assign(partitions)
    return consumer


def describe_arrival(message: Message, now_ms: int) -> dict[str, Any]:
    """What `--json` prints of a record; times in epoch ms, texts where bytes are text."""
    headers = dict(headers_of(message))
    due_ms = _number(headers.get(DUE))
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": {name: _text(raw) for name, raw in headers.items()},
        "origin": _text(headers.get(ORIGIN)),
        "due_ms": due_ms,
        "arrived_ms": now_ms,
        "lateness_ms": None if due_ms is None else now_ms - due_ms,
    }


def _arrivals(consumer: Consumer, settings: Settings, timeout_s: float | None) -> Iterator[Message]:
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while end is None or time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.fatal() or not error.retriable():
                raise explain(error, settings)
            continue
        yield message


def _line(arrival: dict[str, Any], message: Message) -> str:
    lateness_ms = arrival["lateness_ms"]
    late = "not delayed" if lateness_ms is None else f"{lateness_ms:+d} ms"
    return (
        f"{shown_time(arrival['arrived_ms'])}  {late:>11}  {message.partition()}/{message.offset()}"
        f"  {shown_bytes(message.key())}  {shown_bytes(message.value())}"
    )


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() else None


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "backslashreplace")
