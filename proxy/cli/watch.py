"""`watch`: records as they arrive in a topic, with their lateness."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from typing import Annotated, Any

import typer
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    Message,
    TopicPartition,
)

from proxy.cli.terminal import (
    AsJson,
    Bootstrap,
    Config,
    StopAsked,
    Utc,
    say,
    say_json,
    settings_for,
    show_utc,
    shown_bytes,
    shown_time,
    stop_raises,
    text_of,
)
from proxy.clock import wall_clock_ms
from proxy.config.settings import Settings
from proxy.kafka.access import Connection, client_config, explain, explained
from proxy.kafka.control import go_to_end
from proxy.logs import plain
from proxy.protocol.headers import (
    CHECK,
    DUE,
    ERROR,
    ERROR_DETAIL,
    ID,
    ORIGIN,
    UNREADABLE,
    read_headers,
)
from proxy.protocol.outcomes import DEAD_LETTERED, read_outcome

WHAT_WIDTH = len(DEAD_LETTERED)
MOST_DIGITS = 18


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
    utc: Utc = False,
) -> None:
    """Print each record that arrives, and how late; of outcomes and dead letters, what and why."""
    show_utc(is_wanted=utc)
    settings = settings_for(config, bootstrap)
    is_outcomes = topic == settings.topics.outcomes
    with (
        suppress(StopAsked),
        stop_raises(),
        closing(_open_consumer(settings, topic, from_beginning=from_beginning)) as consumer,
    ):
        if not as_json:
            shown = "how an ingress record ended" if is_outcomes else "how late a record is"
            say(f"watching {topic}; the second column is {shown} (Ctrl-C ends)")
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for message in islice(_arrivals(consumer, settings, end), count):
            arrival = describe_arrival(message)
            if is_outcomes:
                arrival["ended"] = read_outcome(message.value())
            if as_json:
                say_json(arrival)
            else:
                say(watch_line(arrival, message.key(), message.value()))


def _open_consumer(settings: Settings, topic: str, *, from_beginning: bool) -> Consumer:
    description = Connection(settings).describe_topic(topic, "Read")
    numbers = [part.id for part in description.partitions]
    config = client_config(
        settings,
        group_id="kafka-delay-proxy-watch",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_wait_max_ms=50,
    )
    with explained(settings):
        consumer = Consumer(config)
        if from_beginning:
            consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in numbers])
        else:
            go_to_end(consumer, topic, numbers, Connection.limit_s)
    return consumer


def _arrivals(consumer: Consumer, settings: Settings, end_s: float | None) -> Iterator[Message]:
    while end_s is None or time.monotonic() < end_s:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.fatal() or not error.retriable():
                raise explain(error, settings, message.topic(), "Read")
            continue
        yield message


def describe_arrival(message: Message) -> dict[str, Any]:
    """Return the `--json` output for a record. Times are epoch ms."""
    kind, timestamp_ms = message.timestamp()
    arrived_ms = wall_clock_ms() if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms
    headers = _headers_of(message)
    due_ms = _number(headers.get(DUE))
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "key": text_of(message.key()),
        "value": text_of(message.value()),
        "headers": {name: text_of(raw) for name, raw in headers.items()},
        "origin": text_of(headers.get(ORIGIN)),
        "due_ms": due_ms,
        "arrived_ms": arrived_ms,
        "lateness_ms": None if due_ms is None else arrived_ms - due_ms,
        "check": _number(headers.get(CHECK)),
        "error": text_of(headers.get(ERROR)),
        "error_detail": text_of(headers.get(ERROR_DETAIL)),
    }


def _headers_of(message: Message) -> dict[str, bytes | None]:
    """Return the headers, or a mark: the client library shows none if a name is not UTF-8."""
    try:
        return dict(read_headers(message) or [])
    except (SystemError, UnicodeDecodeError):
        return {UNREADABLE: None}


def watch_line(arrival: Mapping[str, Any], key: bytes | None, value: bytes | None) -> str:
    """Return the line for a record of `describe_arrival`. `ended` has an outcome."""
    ended = arrival.get("ended")
    what = ended["outcome"] if ended else _what(arrival)
    cells = _outcome_cells(ended) if ended else _record_cells(arrival, key, value)
    place = f"{arrival['partition']}/{arrival['offset']}"
    return "  ".join([shown_time(arrival["arrived_ms"]), f"{what:>{WHAT_WIDTH}}", place, *cells])


def _what(arrival: Mapping[str, Any]) -> str:
    if arrival["check"] is not None:
        return f"check {arrival['check']}"
    if arrival["error"] is not None:
        return "dead letter"
    if (lateness_ms := arrival["lateness_ms"]) is not None:
        return f"{lateness_ms:+d} ms"
    return "unreadable" if "ended" in arrival or DUE in arrival["headers"] else "not delayed"


def _record_cells(
    arrival: Mapping[str, Any], key: bytes | None, value: bytes | None
) -> Iterator[str]:
    yield shown_bytes(key)
    yield shown_bytes(value)
    if arrival["check"] is not None:
        yield f"commit or roll back: {plain(arrival['headers'].get(ID))}"
    if arrival["error"] is not None:
        yield f"{plain(arrival['error'])}: {plain(arrival['error_detail'])}"
        yield f"was {plain(arrival['origin'])}"


def _outcome_cells(ended: Mapping[str, Any]) -> Iterator[str]:
    yield plain(ended["origin"])
    if ended.get("id") is not None:
        yield f"id {plain(ended['id'])}"
    if isinstance(due_ms := ended.get("due"), int):
        yield f"due {shown_time(due_ms)}"
    if ended.get("next_origin"):
        yield f"next {plain(ended['next_origin'])}"
    if ended.get("detail"):
        yield plain(ended["detail"])


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= MOST_DIGITS else None
