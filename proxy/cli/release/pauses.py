"""`pause`, `resume`, `pauses`: hold targets back, or stop taking in, and let go again."""

from collections.abc import Sequence
from typing import Annotated

import typer

from proxy.cli.release.run_time_change import (
    Admin,
    Answers,
    ask_instances,
    path_of,
    say_silent,
    tell_done,
)
from proxy.cli.terminal.options import AsJson, Config, settings_for
from proxy.cli.terminal.output import say, say_json
from proxy.config.settings import MOST_PER_SECOND, Settings
from proxy.errors import ProxyError

INGEST_PATH = "/ingest/paused"

Targets = Annotated[
    str | None, typer.Argument(help="A target, or a pattern like 'orders-*'.", show_default=False)
]
Ingest = Annotated[bool, typer.Option("--ingest", help="Not a target: the reading of the ingress.")]


class NotPaused(ProxyError):
    """What is to be resumed is held back by nothing."""


def pause(
    targets: Targets = None,
    ingest: Ingest = False,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Hold back what is for some targets, or with --ingest take nothing more in.

    Counts for all instances, until it is resumed. Exit code 1 where one has not noticed yet."""
    path = _path(targets, is_ingest=ingest)
    answers = ask_instances(settings_for(config), admin, "PUT", path)
    done = "Taking in is paused." if ingest else f"{targets} is paused."
    tell_done(answers, done, as_json=as_json)


def resume(
    targets: Targets = None,
    ingest: Ingest = False,
    per_second: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_PER_SECOND,
            help="Release what was held back at so many records a second, over all partitions.",
        ),
    ] = None,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let go what `pause` holds back: name the same pattern, or --ingest.

    Exit code 1 where it is not paused, or an instance has not noticed yet."""
    path, settings = _path(targets, is_ingest=ingest), settings_for(config)
    if ingest and per_second is not None:
        raise typer.BadParameter(
            "--per-second is for targets; the ingress is read as fast as may be"
        )
    if targets is not None and per_second is None:
        _refuse_unless_held(settings, admin, targets)
    rate = "" if per_second is None else f"?per_second={per_second}"
    answers = ask_instances(settings, admin, "DELETE", f"{path}{rate}")
    done = "Taking in goes on." if ingest else f"{targets} is resumed."
    tell_done(answers, done, as_json=as_json)


def pauses(admin: Admin = None, config: Config = None, as_json: AsJson = False) -> None:
    """List the targets that are paused or released at a rate, and whether taking in is paused."""
    settings = settings_for(config)
    answers = ask_instances(settings, admin, "GET", "/pauses")
    ingest = ask_instances(settings, admin, "GET", "/ingest")
    paused, rates = _held(answers)
    is_ingest_paused = any(reply["paused"] for reply in ingest.replies)
    unread = sum(reply["unread"] for reply in ingest.replies)
    if as_json:
        about_ingest = {"paused": is_ingest_paused, "unread": unread}
        shown = {"paused": paused, "release_rates": rates, "ingest": about_ingest}
        say_json({**shown, "silent": answers.silent})
        return
    for pattern in paused:
        say(f"paused: {pattern}")
    for pattern, per_second in sorted(rates.items()):
        say(f"resumed at {per_second:,} records a second: {pattern}")
    if is_ingest_paused:
        say(f"taking in is paused: {unread:,} records of the ingress wait to be read")
    if not (paused or rates or is_ingest_paused):
        say("Nothing is paused.")
    say_silent(answers)


def _held(answers: Answers) -> tuple[list[str], dict[str, int]]:
    """Patterns that are paused, and those of pauses that are over to their rates."""
    paused = {pattern for reply in answers.replies for pattern in reply["paused"]}
    rates = {name: n for reply in answers.replies for name, n in reply["release_rates"].items()}
    return sorted(paused), rates


def _refuse_unless_held(settings: Settings, admin: Sequence[str] | None, targets: str) -> None:
    """A pattern with a slip of the pen would leave what is meant paused."""
    paused, rates = _held(ask_instances(settings, admin, "GET", "/pauses"))
    if targets not in {*paused, *rates}:
        raise NotPaused(
            f"{targets} is not paused, and no rate counts for it.",
            f"Name what was paused, as it was: {', '.join(paused)}."
            if paused
            else "Nothing is paused.",
        )


def _path(targets: str | None, *, is_ingest: bool) -> str:
    if is_ingest == (targets is not None):
        raise typer.BadParameter("name a target or pattern, or --ingest: one of the two")
    return INGEST_PATH if targets is None else path_of("/pauses", targets)
