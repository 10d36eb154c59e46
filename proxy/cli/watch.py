"""`watch`: each record as it arrives in a topic, and how late it is."""

import time
from contextlib import closing, suppress
from itertools import islice
from typing import Annotated, Any

import typer
from confluent_kafka import Message

from proxy.cli.ingress.arrivals import arrivals, open_consumer
from proxy.cli.ingress.connection import headers_of
from proxy.cli.ingress.outcome_records import read_outcome
from proxy.cli.terminal.options import AsJson, Bootstrap, Config, settings_for
from proxy.cli.terminal.output import say, say_json
from proxy.cli.terminal.stopping import StopAsked, stop_raises
from proxy.cli.terminal.watch_line import watch_line
from proxy.clock import wall_clock_ms
from proxy.records.headers import CHECK, DUE, ERROR, ERROR_DETAIL, ORIGIN


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


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() else None


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "backslashreplace")
