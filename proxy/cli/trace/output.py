"""What a person, or a program, sees of a story."""

from typing import Any

from proxy.cli.terminal.output import say, say_json, say_table, shown_time
from proxy.cli.trace.chain.story import Step, Story
from proxy.dead_letters.letters.letter import Origin

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
"""How the place is meant that a step names."""


def say_story(asked: Origin, story: Story) -> None:
    """A line a step, and what cannot be told."""
    since = "" if asked == story.first_origin else f", which began as {story.first_origin}"
    say(f"{asked}{since}: {story.state}")
    if story.trace_id is not None:
        say(f"trace-id {story.trace_id}")
    say("")
    say_table(["time", "what", "where", "detail"], list(map(_row, story.steps)), WHOLE)
    if story.unknown:
        say("\nNot known:")
        for sentence in story.unknown:
            say(f"  {sentence}")


def say_story_json(asked: Origin, story: Story, *, is_whole: bool) -> None:
    """One object; times in epoch ms, null where they are not known."""
    say_json(
        {
            "origin": str(asked),
            "first_origin": str(story.first_origin),
            "state": story.state,
            "trace_id": story.trace_id,
            "steps": [_step_json(step) for step in story.steps],
            "unknown": story.unknown,
            "is_whole": is_whole,
        }
    )


def _row(step: Step) -> tuple[str, str, str, str]:
    time = "" if step.time_ms is None else shown_time(step.time_ms)
    if step.where is None:
        return time, step.what, "", step.detail
    return time, LEADS_ON.get(step.what, step.what), str(step.where), step.detail


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "time_ms": step.time_ms,
        "what": step.what,
        "where": None if step.where is None else str(step.where),
        "detail": step.detail,
        "origin": str(step.origin),
    }
