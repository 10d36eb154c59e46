"""What a person sees of a story: each step on a line, with times of the zone of this machine."""

from proxy.cli.terminal.output import say, say_table, shown_duration, shown_time
from proxy.lineage.chain.story import DELIVERED, WAITING, Step
from proxy.lineage.record_trace import RecordTrace
from proxy.plain_text import plain

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


def say_story(found: RecordTrace) -> None:
    """A line a step, and what cannot be told."""
    origin, story = found
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
    """The detail of a step, with its times."""
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
