"""`watch`: each record as it arrives in a topic, and how late it is."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Annotated, Any

import typer
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from proxy.cli.connection import (
    Connection,
    client_config,
    explain,
    explained,
    headers_of,
)
from proxy.cli.options import AsJson, Bootstrap, Config, settings_for
from proxy.cli.outcome_records import read_outcome
from proxy.cli.output import say, say_json
from proxy.cli.stopping import StopAsked, stop_raises
from proxy.cli.watch_line import watch_line
from proxy.clock import wall_clock_ms
from proxy.headers import CHECK, DUE, ERROR, ERROR_DETAIL, ORIGIN
from proxy.settings import Settings

AGAIN_S = 0.1
NOT_KNOWN_YET = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


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
    """Print each record that arrives, and how late; of outcomes and dead letters, what and why."""
    settings = settings_for(config, bootstrap)
    with (
        suppress(StopAsked),
        stop_raises(),
        closing(open_consumer(settings, topic, from_beginning=from_beginning)) as consumer,
    ):
        if not as_json:
            is_ends = topic == settings.topics.outcomes
            shown = "how an ingress record ended" if is_ends else "how late a record is"
            say(f"watching {topic}; the second column is {shown} (Ctrl-C ends)")
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for message in islice(arrivals(consumer, settings, end), count):
            arrival = describe_arrival(message, wall_clock_ms())
            if topic == settings.topics.outcomes:
                arrival["ended"] = read_outcome(message.value())
            if as_json:
                say_json(arrival)
            else:
                say(watch_line(arrival, message.key(), message.value()))


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
                place.offset = _end_of(consumer, place)
        consumer.assign(partitions)
    return consumer


def _end_of(consumer: Consumer, place: TopicPartition) -> int:
    """The partition's end; of a topic just made the broker may not know the leader for a moment."""
    deadline = time.monotonic() + Connection.limit_s
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, Connection.limit_s)[1])
        except KafkaException as error:
            if error.args[0].code() not in NOT_KNOWN_YET or time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)


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
        "check": _number(headers.get(CHECK)),
        "error": _text(headers.get(ERROR)),
        "error_detail": _text(headers.get(ERROR_DETAIL)),
    }


def arrivals(
    consumer: Consumer, settings: Settings, end_monotonic: float | None
) -> Iterator[Message]:
    """Records as they come, until `end_monotonic` or for ever; raises what does not pass."""
    while end_monotonic is None or time.monotonic() < end_monotonic:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.fatal() or not error.retriable():
                raise explain(error, settings)
            continue
        yield message


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() else None


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "backslashreplace")
