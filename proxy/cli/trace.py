"""`trace`: the history of one record, from the topics."""

from dataclasses import dataclass

import typer

from proxy.cli.terminal import (
    AtBroker,
    Times,
    argument,
    checked_delay_ms,
    checked_origin,
    option,
    progress,
    say,
    say_json,
    say_table,
    shown_duration,
    shown_time,
)
from proxy.clock import wall_clock_ms
from proxy.dead_letters.letter import Origin
from proxy.kafka.access import explained
from proxy.lineage.story import DELIVERED, PENDING, Step, Story
from proxy.lineage.topics import KafkaTopics, silent
from proxy.lineage.tracer import trace_record
from proxy.logs import plain

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
    """Print a line for each step, then a sentence for each unknown part."""
    origin = story.origin
    since = "" if origin == story.first_origin else f", first origin {story.first_origin}"
    say(f"{origin}{since}: {story.state}")
    if story.trace_id is not None:
        say(f"trace-id {story.trace_id}")
    say("")
    rows = [
        (
            "" if step.time_ms is None else shown_time(step.time_ms),
            step.what if step.where is None else LEADS_ON.get(step.what, step.what),
            "" if step.where is None else str(step.where),
            detail_of(step),
        )
        for step in story.steps
    ]
    say_table(["time", "what", "where", "detail"], rows, whole=("time", "where"))
    if story.unknown:
        say("", "Unknown:", *(f"  {sentence}" for sentence in story.unknown))
    if not story.is_whole:
        say("", "Allow more time with --timeout.")


def detail_of(step: Step) -> str:
    """Return the detail of a step, with its times."""
    words = plain(step.detail)
    if step.what == DELIVERED:
        late = "its due time is unknown"
        if step.late_ms is not None:
            is_long = step.late_ms >= 10_000
            late = f"{shown_duration(step.late_ms) if is_long else f'{step.late_ms} ms'} late"
        return f"{late}; {words}" if words else late
    if step.due_ms is None:
        return words
    if step.what != PENDING:
        return f"{words}, due {shown_time(step.due_ms)}"
    left_ms = step.due_ms - (step.time_ms or 0)
    if left_ms > 0:
        return f"due in {shown_duration(left_ms)}"
    return f"due {shown_duration(-left_ms)} ago: look whether the proxy runs"


@dataclass(frozen=True, kw_only=True)
class Traced(Times, AtBroker):
    """Options of `trace`."""

    origin: Origin = argument(
        "topic/partition/offset of the ingress record or of the delivered record.",
        parser=checked_origin,
    )
    timeout_s: float = option(
        "Stop after this many seconds and show the steps found by then.",
        "--timeout",
        default=60.0,
        min=0.1,
    )
    retries_within: str = option(
        "Look for consumer retries up to this long after a delivery, for example 30m.",
        default="10m",
    )


def trace(asked: Traced) -> None:
    """Show each step of a record, from its first origin to its end. The steps are read from the
    topics."""
    settings, within_ms = asked.settings, checked_delay_ms(asked.retries_within)
    now_ms = wall_clock_ms()
    with explained(settings):
        shown = silent if asked.as_json else progress
        topics = KafkaTopics(settings, asked.timeout_s, progress=shown)
        story = trace_record(topics, settings, asked.origin, within_ms, now_ms)
    if asked.as_json:
        say_json(story.data())
    else:
        say_story(story)
    raise typer.Exit(0 if story.is_whole else 1)
