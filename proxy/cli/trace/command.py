"""`trace`: follow one record through the topics."""

from dataclasses import replace
from typing import Annotated

import typer

from proxy.cli.terminal.options import (
    AsJson,
    Bootstrap,
    Config,
    checked_delay_ms,
    checked_origin,
    settings_for,
)
from proxy.cli.trace.beginning import find_beginning, refuse_untold
from proxy.cli.trace.chain.story import Storyteller
from proxy.cli.trace.kafka_topics import KafkaTopics
from proxy.cli.trace.output import say_story, say_story_json
from proxy.cli.trace.tracer import Tracer
from proxy.clock import wall_clock_ms
from proxy.config.policy_from_settings import policy_of
from proxy.kafka.access.broker_errors import explained
from proxy.requests.request_reader import request_reader


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
    named, within_ms = checked_origin(origin), checked_delay_ms(retries_within)
    settings = settings_for(config, bootstrap)
    names, now_ms = settings.topics, wall_clock_ms()
    policy = replace(policy_of(settings, None), roll_after_ms=None)
    with explained(settings):
        topics = KafkaTopics(settings, timeout_s, is_silent=as_json)
        beginning = find_beginning(topics, named, names.ingress, settings.bootstrap_servers)
        tracer = Tracer(topics, names, request_reader(policy), within_ms)
        there = topics.offsets(beginning.topic, beginning.partition)
        found = tracer.trace(beginning)
    refuse_untold(found, there, names.outcomes)
    story = Storyteller(names, now_ms).story(found)
    if as_json:
        say_story_json(beginning, story, is_whole=found.is_whole)
    else:
        say_story(beginning, story)
    raise typer.Exit(0 if found.is_whole else 1)
