"""`trace`: follow one record through the topics."""

from typing import Annotated

import typer

from proxy.cli.terminal.options import (
    AsJson,
    Bootstrap,
    Config,
    Utc,
    checked_delay_ms,
    checked_origin,
    settings_for,
)
from proxy.cli.terminal.output import (
    progress,
    say_json,
    show_utc,
)
from proxy.cli.trace.output import say_story
from proxy.clock import wall_clock_ms
from proxy.kafka.access.broker_errors import explained
from proxy.lineage.kafka_topics import Bounds, KafkaTopics, silent
from proxy.lineage.record_trace import trace_record


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
    utc: Utc = False,
) -> None:
    """Say what became of a record: each step from its first origin to its end, from the topics."""
    show_utc(is_wanted=utc)
    named, within_ms = checked_origin(origin), checked_delay_ms(retries_within)
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
