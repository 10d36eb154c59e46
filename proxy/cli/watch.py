"""`watch`: records as they arrive in a topic, with their lateness."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from proxy.cli.terminal import (
    AtBroker,
    StopAsked,
    Times,
    argument,
    flag,
    option,
    say,
    say_json,
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
from proxy.protocol import headers as names
from proxy.protocol.outcomes import DEAD_LETTERED, read_outcome

WHAT_WIDTH = len(DEAD_LETTERED)
MOST_DIGITS = 18


@dataclass(frozen=True, kw_only=True)
class Watched(Times, AtBroker):
    """Options of `watch`."""

    topic: str = argument("The topic to read.")
    from_beginning: bool = flag("Also show the records that are in the topic now.")
    count: int | None = option("Stop after this many records.", min=1)
    timeout_s: float | None = option("Stop after this many seconds.", "--timeout", min=0)


def watch(asked: Watched) -> None:
    """Print each record that arrives in a topic, with its lateness.

    An outcome is shown with the record that ended. A dead letter is shown with its reason and
    origin."""
    settings = asked.settings
    is_outcomes = asked.topic == settings.topics.outcomes
    with (
        suppress(StopAsked),
        stop_raises(),
        closing(
            open_consumer(settings, asked.topic, from_beginning=asked.from_beginning)
        ) as consumer,
    ):
        if not asked.as_json:
            shown = "how an ingress record ended" if is_outcomes else "how late a record is"
            say(f"watching {asked.topic}; the second column is {shown} (Ctrl-C ends)")
        end_s = None if asked.timeout_s is None else time.monotonic() + asked.timeout_s
        for message in islice(_arrivals(consumer, settings, end_s), asked.count):
            arrival = describe_arrival(message)
            if is_outcomes:
                arrival["ended"] = read_outcome(message.value())
            if asked.as_json:
                say_json(arrival)
            else:
                say(watch_line(arrival, message.key(), message.value()))


def open_consumer(settings: Settings, topic: str, *, from_beginning: bool = False) -> Consumer:
    """Return a consumer at the end of a topic, or at its beginning. Raises ProxyError."""
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
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # the client library asks for a coordinator that it does not need
            if error.fatal() or not error.retriable():
                raise explain(error, settings, message.topic(), "Read")
            continue
        yield message


def describe_arrival(message: Message) -> dict[str, Any]:
    """Return the `--json` output for a record. Times are epoch ms."""
    kind, timestamp_ms = message.timestamp()
    arrived_ms = wall_clock_ms() if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms
    try:
        headers = dict(names.read_headers(message) or [])
    except (SystemError, UnicodeDecodeError):  # the name of a header is not UTF-8
        headers = {names.UNREADABLE: None}
    due_ms = _number(headers.get(names.DUE))
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "key": text_of(message.key()),
        "value": text_of(message.value()),
        "headers": {name: text_of(raw) for name, raw in headers.items()},
        "origin": text_of(headers.get(names.ORIGIN)),
        "due_ms": due_ms,
        "arrived_ms": arrived_ms,
        "lateness_ms": None if due_ms is None else arrived_ms - due_ms,
        "check": _number(headers.get(names.CHECK)),
        "error": text_of(headers.get(names.ERROR)),
        "error_detail": text_of(headers.get(names.ERROR_DETAIL)),
    }


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= MOST_DIGITS else None


def watch_line(arrival: Mapping[str, Any], key: bytes | None, value: bytes | None) -> str:
    """Return the line for a record of `describe_arrival`. In the outcomes topic, `ended` has the
    outcome."""
    if ended := arrival.get("ended"):
        what, cells = ended["outcome"], list(_outcome_cells(ended))
    else:
        what, cells = _record_cells(arrival, key, value)
    place = f"{arrival['partition']}/{arrival['offset']}"
    return "  ".join([shown_time(arrival["arrived_ms"]), f"{what:>{WHAT_WIDTH}}", place, *cells])


def _record_cells(
    arrival: Mapping[str, Any], key: bytes | None, value: bytes | None
) -> tuple[str, list[str]]:
    cells = [shown_bytes(key), shown_bytes(value)]
    if arrival["error"] is not None:
        cells.append(f"{plain(arrival['error'])}: {plain(arrival['error_detail'])}")
        cells.append(f"origin {plain(arrival['origin'])}")
    if arrival["check"] is not None:
        ident = plain(arrival["headers"].get(names.ID))
        return f"check {arrival['check']}", [*cells, f"commit or roll back: {ident}"]
    if arrival["error"] is not None:
        return "dead letter", cells
    if (lateness_ms := arrival["lateness_ms"]) is not None:
        return f"{lateness_ms:+d} ms", cells
    is_unreadable = "ended" in arrival or names.DUE in arrival["headers"]
    return "unreadable" if is_unreadable else "not delayed", cells


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
