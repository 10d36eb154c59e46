"""`trace`: follow one record through the topics."""

from typing import Annotated

import typer

from proxy.cli.terminal.options import AsJson, Bootstrap, Config, settings_for
from proxy.cli.terminal.output import progress, say_json
from proxy.cli.trace.output import say_story
from proxy.clock import wall_clock_ms
from proxy.dead_letters.letters.letter import Origin, read_origin
from proxy.kafka.access.broker_errors import explained
from proxy.lineage.kafka_topics import Bounds, KafkaTopics, silent
from proxy.lineage.record_trace import trace_record
from proxy.requests.times import parse_delay_ms


def trace(
    origin: Annotated[
        str,
        typer.Argument(help="topic/partition/offset in the ingress, or of what was delivered."),
    ],
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Tell what is known after so many seconds.")
    ] = 60.0,
    retries_within: Annotated[
        str, typer.Option(help="Look so long after a delivery whether a consumer failed (30m 2h).")
    ] = "10m",
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say what became of a record: each step from its first origin to its end, from the topics."""
    named, within_ms = _read_place(origin), _read_delay_ms(retries_within)
    settings = settings_for(config, bootstrap)
    now_ms = wall_clock_ms()
    with explained(settings):
        topics = KafkaTopics(settings, Bounds(timeout_s), silent if as_json else progress)
        found = trace_record(topics, settings, named, within_ms, now_ms)
    if as_json:
        say_json(found.data())
    else:
        say_story(found)
    raise typer.Exit(0 if found.story.is_whole else 1)


def _read_place(text: str) -> Origin:
    if (found := read_origin(text)) is not None:
        return found
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise typer.BadParameter(
        f"{shown!r} names no record: write topic/partition/offset (timer.ingress/2/4711)"
    )


def _read_delay_ms(text: str) -> int:
    try:
        return parse_delay_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
