"""`trace`: one record's way through the topics."""

from typing import Annotated

import typer

from proxy.cli.terminal import (
    AsJson,
    Bootstrap,
    Config,
    Utc,
    checked_delay_ms,
    checked_origin,
    progress,
    say,
    say_json,
    say_table,
    settings_for,
    show_utc,
    shown_duration,
    shown_time,
)
from proxy.clock import wall_clock_ms
from proxy.kafka.access import explained
from proxy.lineage.story import DELIVERED, WAITING, Step, Story
from proxy.lineage.topics import KafkaTopics, silent
from proxy.lineage.tracer import trace_record
from proxy.logs import plain

WHOLE = ("time", "where")
LEADS_ON = {
    "rolled": "rolled to",
    "requeued": "requeued to",
    "replayed": "replayed as",
    "replaced": "replaced by",
    "cancelled": "cancelled by",
    "committed": "committed by",
    "rolled-back": "rolled back by",
    "delivered": "delivered at",
    "applied": "applied to",
}


def say_story(story: Story) -> None:
    """Print a line for each step, and the gaps."""
    origin = story.origin
    since = "" if origin == story.first_origin else f", which began as {story.first_origin}"
    say(f"{origin}{since}: {story.state}")
    if story.trace_id is not None:
        say(f"trace-id {story.trace_id}")
    say("")
    say_table(["time", "what", "where", "detail"], list(map(_row, story.steps)), WHOLE)
    if story.unknown:
        say("", "Not known:")
        for sentence in story.unknown:
            say(f"  {sentence}")
    if not story.is_whole:
        say("", "Allow more time with --timeout.")


def _row(step: Step) -> tuple[str, str, str, str]:
    time = "" if step.time_ms is None else shown_time(step.time_ms)
    if step.where is None:
        return time, step.what, "", detail_of(step)
    return time, LEADS_ON.get(step.what, step.what), str(step.where), detail_of(step)


def detail_of(step: Step) -> str:
    """Return the detail of a step, with its times."""
    words = plain(step.detail)
    if step.what == DELIVERED:
        return "; ".join(part for part in (_lateness(step.late_ms), words) if part)
    if step.due_ms is None:
        return words
    if step.what == WAITING:
        return _wait(step.due_ms, step.time_ms or 0)
    return f"{words}, due {shown_time(step.due_ms)}"


def _lateness(late_ms: int | None) -> str:
    if late_ms is None:
        return "its due is not known"
    return f"{late_ms} ms late" if late_ms < 10_000 else f"{shown_duration(late_ms)} late"


def _wait(due_ms: int, now_ms: int) -> str:
    if due_ms > now_ms:
        return f"due in {shown_duration(due_ms - now_ms)}"
    return f"due {shown_duration(now_ms - due_ms)} ago: does the proxy run?"


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
        topics = KafkaTopics(settings, timeout_s, progress=silent if as_json else progress)
        story = trace_record(topics, settings, named, within_ms, now_ms)
    if as_json:
        say_json(story.data())
    else:
        say_story(story)
    raise typer.Exit(0 if story.is_whole else 1)
