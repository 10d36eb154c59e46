"""`dead-letters`: look at what could not be delivered, mend it, and send it in again, once."""

import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Annotated, TypeVar

import typer

from proxy.cli.dead_letters.output import (
    letter_json,
    nothing_there,
    say_letter,
    say_summaries,
    summary_json,
)
from proxy.cli.dead_letters.replay_run import ReplayRun, find_letter, reading
from proxy.cli.terminal.options import (
    AsJson,
    Bootstrap,
    Config,
    Utc,
    settings_for,
)
from proxy.cli.terminal.output import (
    say,
    say_json,
    show_utc,
)
from proxy.clock import wall_clock_ms
from proxy.dead_letters.dead_letter_topics import DeadLetterTopics, checked_group
from proxy.dead_letters.letters.edits import read_edits
from proxy.dead_letters.letters.letter import Letter, read_place
from proxy.dead_letters.letters.letter_summary import newest, oldest, summary_of
from proxy.dead_letters.letters.replay_planner import is_original
from proxy.dead_letters.letters.replay_rate import read_rate
from proxy.dead_letters.letters.selection import Selection, read_moment_ms, read_reasons
from proxy.dead_letters.replay import ReplayOptions
from proxy.kafka.access.broker_errors import explained

app = typer.Typer(help="Records that could not be delivered.", no_args_is_help=True)

MOST_LISTED = 100_000

T = TypeVar("T")
R = TypeVar("R")

Reasons = Annotated[
    list[str] | None,
    typer.Option(
        "--reason",
        "-r",
        help="Only those with this timer-error, with --group an exception like this; repeatable.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", help="Only those for topics like this (orders.*); repeatable."),
]
Origins = Annotated[
    list[str] | None,
    typer.Option("--origin", "-o", help="Only those from there (timer.ingress/0/*); repeatable."),
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Written then or later: RFC 3339, epoch ms, or an age (2h)."),
]
Group = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Those of a group's consumers, instead of the proxy's."),
]
To = Annotated[str | None, typer.Option("--to", help="Written before: as --from.")]


@app.command("list")
def list_letters(
    reason: Reasons = None,
    target: Targets = None,
    origin: Origins = None,
    from_: From = None,
    to: To = None,
    group: Group = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST_LISTED)] = 20,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="The first ones instead of the last.")
    ] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
    utc: Utc = False,
) -> None:
    """List dead letters, the newest first, and whether they have been replayed."""
    show_utc(is_wanted=utc)
    selection = _selection(reason, target, origin, from_, to, group)
    settings = settings_for(config, bootstrap)
    with explained(settings):
        topics = DeadLetterTopics(settings, _usage(checked_group, group))
        spans = topics.spans(selection)
        with reading("looking", spans.values(), is_silent=as_json) as on_read:
            letters = partial(topics.letters, selection, on_read)
            shown = (oldest if oldest_first else newest)(letters, spans, limit)
            marks = topics.marks(shown)
    if as_json:
        for one in shown:
            say_json(summary_json(one, marks.get(one.place)))
    elif not shown:
        say(nothing_there(topics.name, selection))
    else:
        say_summaries(shown, marks, group)
        if len(shown) == limit:
            say(f"These are the {'first' if oldest_first else 'last'} {limit}; --limit shows more.")


@app.command("show")
def show_letter(
    place: Annotated[str, typer.Argument(help="partition/offset there, or the letter's origin.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the value to stdout, byte for byte, and no more.")
    ] = False,
    group: Group = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
    utc: Utc = False,
) -> None:
    """Show everything about one dead letter: why it is one, what to do, headers, key and value."""
    show_utc(is_wanted=utc)
    named = _usage(read_place, place)
    settings = settings_for(config, bootstrap)
    with explained(settings):
        topics = DeadLetterTopics(settings, _usage(checked_group, group))
        letter = find_letter(topics, named)
        if raw:
            value = letter.value
            if letter.lacks_value:
                _, value = _original_value(topics, letter)
            sys.stdout.buffer.write(value or b"")
            sys.stdout.buffer.flush()
            return
        mark = topics.marks([summary_of(letter)]).get(letter.place)
        if as_json:
            say_json(letter_json(letter, mark))
        else:
            say_letter(letter, topics.name, mark, _value_note(topics, letter))


@app.command("replay")
def replay_letters(
    place: Annotated[
        list[str] | None, typer.Argument(help="Letters by place or origin; without: the filters.")
    ] = None,
    reason: Reasons = None,
    target: Targets = None,
    origin: Origins = None,
    from_: From = None,
    to: To = None,
    group: Group = None,
    to_set: Annotated[
        list[str] | None, typer.Option("--set", help="Give a header this value: name=value.")
    ] = None,
    to_unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Take a header out: its name.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")
    ] = False,
    rate: Annotated[str | None, typer.Option(help="At most so many: 100/s, 30/m, 5/h.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Replay so many, the oldest first.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that have been replayed already.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it.")] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters in again, with edited headers if need be; none twice unless asked to.

    Look first with --dry-run, then say --yes."""
    selection = _selection(reason, target, origin, from_, to, group)
    named = [_usage(read_place, text) for text in place or []]
    if named and not selection.is_all:
        raise typer.BadParameter("name letters, or choose them by filters; not both")
    edits = _usage(lambda both: read_edits(*both), (to_set or [], to_unset or []))
    options = ReplayOptions(edits, again, limit, None if rate is None else _usage(read_rate, rate))
    if not (dry_run or yes):
        raise typer.BadParameter("look first with --dry-run, then say --yes")
    settings = settings_for(config, bootstrap)
    with explained(settings):
        topics = DeadLetterTopics(settings, _usage(checked_group, group))
        replay = ReplayRun(topics, selection, named, options, as_json=as_json)
        replay.preview() if dry_run else replay.replay()
    raise typer.Exit(replay.exit_code)


def _usage(read: Callable[[T], R], given: T) -> R:
    """What was read; a usage error where it cannot be."""
    try:
        return read(given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _selection(
    reasons: list[str] | None,
    targets: list[str] | None,
    origins: list[str] | None,
    from_: str | None,
    to: str | None,
    group: str | None,
) -> Selection:
    moment_ms = partial(read_moment_ms, now_ms=wall_clock_ms())
    from_ms = None if from_ is None else _usage(moment_ms, from_)
    to_ms = None if to is None else _usage(moment_ms, to)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise typer.BadParameter("--from must be before --to")
    codes = tuple(reasons or ()) if group else _usage(read_reasons, reasons or [])
    return Selection(codes, tuple(targets or ()), tuple(origins or ()), from_ms, to_ms)


def _original_value(topics: DeadLetterTopics, letter: Letter) -> tuple[bool, bytes | None]:
    """Whether the ingress still has the record, and its value."""
    with closing(topics.originals()) as originals:
        original = originals.find(letter)
    if original is None or not is_original(letter, original):
        return False, None
    return True, original[1]


def _value_note(topics: DeadLetterTopics, letter: Letter) -> str | None:
    """Why a letter has no value: it never had one, or the dead-letter topic could not take it."""
    if not letter.lacks_value:
        return None
    is_there, value = _original_value(topics, letter)
    if not is_there:
        return (
            "none here, and the original is no longer in the ingress: it was null, or too large "
            "for this topic and is lost"
        )
    if value is None:
        return "null, as in the ingress"
    return (
        f"{len(value):,} bytes, too large for this topic; they are still in the ingress: "
        "--raw writes them to stdout, a replay takes them from there"
    )
