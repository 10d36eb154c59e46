"""`pause`, `resume`, `pauses`, `limits` and `skip`: changes at run time, for all instances."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from pydantic import ValidationError

from proxy.cli.admin_port import Answer, Instances, Replies, ask_any, say_silent
from proxy.cli.terminal import (
    AsJson,
    Config,
    checked_pattern,
    say,
    say_json,
    say_table,
    settings_for,
)
from proxy.config.settings import MOST_PER_SECOND, OverdueLimit, Settings
from proxy.errors import ProxyError
from proxy.protocol.times import shown_delay

ANSWER_WITHIN_S: Final = 30.0
PATHS: Final = {"--ingest": ("/pauses", "/ingest/paused"), "--worker": ("/limits", "/limits")}
COLUMNS = ("targets", "per second", "overdue", "from")
EACH_WORKER = "(each worker)"
RUN_TIME = "run-time"
SETTINGS = "settings"

Targets = Annotated[
    str | None, typer.Argument(help="A target, or a pattern like 'orders-*'.", show_default=False)
]
Admin = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        help="host:port or URL of an admin port: any will do, those named say when they go by it. "
        "Repeatable.",
    ),
]
Ingest = Annotated[bool, typer.Option("--ingest", help="Not a target: the reading of the ingress.")]
Worker = Annotated[
    bool, typer.Option("--worker", help="Not a target: all that each worker delivers or ends.")
]


def _ask(
    settings: Settings,
    admin: Sequence[str] | None,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
) -> Replies:
    how = {"method": method, "body": body, "within_s": ANSWER_WITHIN_S}
    return Instances(settings, admin).ask(path, **how)


def _path(targets: str | None, option: str, *, is_given: bool) -> str:
    if is_given == (targets is not None):
        raise typer.BadParameter(f"name a target or pattern, or {option}: one of the two")
    prefix, whole = PATHS[option]
    return whole if targets is None else f"{prefix}/{quote(checked_pattern(targets), safe='')}"


def _tell_done(replies: Replies, done: str, *, as_json: bool) -> None:
    answers, silent = replies
    is_everywhere = not silent and all(answer["in_force"] for answer in answers)
    if as_json:
        say_json({**answers[0], "in_force": is_everywhere, "silent": silent})
    else:
        say(done if is_everywhere else f"{done} It is written, but not every instance has noticed.")
        say_silent(silent)
    raise typer.Exit(0 if is_everywhere else 1)


class NotPaused(ProxyError):
    """The targets to resume are not paused."""


def pause(
    targets: Targets = None,
    ingest: Ingest = False,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Hold back what is for some targets, or with --ingest take nothing more in.

    Counts for all instances, until it is resumed. Exit code 1 where one has not noticed yet."""
    path = _path(targets, "--ingest", is_given=ingest)
    replies = _ask(settings_for(config), admin, "PUT", path)
    done = "Taking in is paused." if ingest else f"{targets} is paused."
    _tell_done(replies, done, as_json=as_json)


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
    path, settings = _path(targets, "--ingest", is_given=ingest), settings_for(config)
    if ingest and per_second is not None:
        raise typer.BadParameter(
            "--per-second is for targets; the ingress is read as fast as may be"
        )
    if targets is not None and per_second is None:
        _refuse_unless_held(settings, admin, targets)
    rate = "" if per_second is None else f"?per_second={per_second}"
    replies = _ask(settings, admin, "DELETE", f"{path}{rate}")
    done = "Taking in goes on." if ingest else f"{targets} is resumed."
    _tell_done(replies, done, as_json=as_json)


def pauses(admin: Admin = None, config: Config = None, as_json: AsJson = False) -> None:
    """List the targets that are paused or released at a rate, and whether taking in is paused."""
    settings = settings_for(config)
    replies = _ask(settings, admin, "GET", "/pauses")
    ingest = _ask(settings, admin, "GET", "/ingest").answers
    paused, rates = _held(replies)
    is_ingest_paused = any(answer["paused"] for answer in ingest)
    unread = sum(answer["unread"] for answer in ingest)
    if as_json:
        about_ingest = {"paused": is_ingest_paused, "unread": unread}
        shown = {"paused": paused, "release_rates": rates, "ingest": about_ingest}
        say_json({**shown, "silent": replies.silent})
        return
    for pattern in paused:
        say(f"paused: {pattern}")
    for pattern, per_second in sorted(rates.items()):
        say(f"resumed at {per_second:,} records a second: {pattern}")
    if is_ingest_paused:
        say(f"taking in is paused: {unread:,} records of the ingress wait to be read")
    if not (paused or rates or is_ingest_paused):
        say("Nothing is paused.")
    say_silent(replies.silent)


def _held(replies: Replies) -> tuple[list[str], dict[str, int]]:
    paused = {pattern for answer in replies.answers for pattern in answer["paused"]}
    rates = {name: n for answer in replies.answers for name, n in answer["release_rates"].items()}
    return sorted(paused), rates


def _refuse_unless_held(settings: Settings, admin: Sequence[str] | None, targets: str) -> None:
    """A mistyped pattern would leave the targets paused."""
    paused, rates = _held(_ask(settings, admin, "GET", "/pauses"))
    if targets not in {*paused, *rates}:
        raise NotPaused(
            f"{targets} is not paused, and no rate counts for it.",
            f"Name what was paused, as it was: {', '.join(paused)}."
            if paused
            else "Nothing is paused.",
        )


class NotLimited(ProxyError):
    """No limit was set at run time."""


limits_app = typer.Typer(invoke_without_command=True)


@limits_app.callback()
def limits(
    context: typer.Context, admin: Admin = None, config: Config = None, as_json: AsJson = False
) -> None:
    """List the caps and rules for the overdue that count; the first that fits a target does.

    `limits set` and `limits clear` change them at run time, for all instances."""
    if context.invoked_subcommand is not None:
        return
    answers, silent = _ask(settings_for(config), admin, "GET", "/limits")
    found: list[Answer] = []
    for answer in answers:
        found += [one for one in answer["limits"] if one not in found]
    found.sort(key=lambda one: one["source"] == SETTINGS)
    workers = list(dict.fromkeys((one["max_per_second"], _source(one)) for one in answers))
    if as_json:
        bounds = [{"max_per_second": n, "source": source} for n, source in workers]
        say_json({**answers[0], "limits": found, "each_worker": bounds, "silent": silent})
        return
    rows = [[EACH_WORKER, f"{n:,}", "", source] for n, source in workers if n is not None]
    rows += map(_row, found)
    if rows:
        say_table(COLUMNS, rows)
    else:
        say("No target has a limit.")
    say_silent(silent)


@limits_app.command("set")
def set_limit(
    targets: Targets = None,
    worker: Worker = False,
    per_second: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_PER_SECOND, help="Records a second, for each target and worker."
        ),
    ] = None,
    overdue: Annotated[
        str | None,
        typer.Option(
            metavar="AGE:ACTION",
            help="What becomes of records overdue by more: 1h:drop, 1h:dead-letter, 1h:deliver.",
        ),
    ] = None,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Set a cap, a rule for the overdue, or both, in place of what was set for the same pattern.

    Exit code 1 where an instance has not noticed yet."""
    path = _path(targets, "--worker", is_given=worker)
    if worker and (per_second is None or overdue is not None):
        raise typer.BadParameter("with --worker name --per-second; --overdue is for targets")
    if per_second is None and overdue is None:
        raise typer.BadParameter("name --per-second, --overdue, or both")
    body: dict[str, Any] = {} if per_second is None else {"per_second": per_second}
    if overdue is not None:
        body["overdue"] = _rule(overdue)
    replies = _ask(settings_for(config), admin, "PUT", path, body)
    _tell_done(replies, f"{targets or 'Each worker'} is limited.", as_json=as_json)


@limits_app.command("clear")
def clear_limit(
    targets: Targets = None,
    worker: Worker = False,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take back what was set at run time: what the settings say counts again.

    Exit code 1 where nothing was set, or an instance has not noticed yet."""
    path, settings = _path(targets, "--worker", is_given=worker), settings_for(config)
    known = _ask(settings, admin, "GET", "/limits").answers
    if not any(_is_set(answer, targets) for answer in known):
        raise NotLimited(
            f"Nothing was set at run time for {targets or 'each worker'}.",
            "`limits` lists what is set: name the pattern as it stands there." if targets else "",
        )
    replies = _ask(settings, admin, "DELETE", path)
    whose = targets or "A worker as a whole"
    _tell_done(replies, f"{whose} has no limit set at run time.", as_json=as_json)


def _is_set(answer: Answer, targets: str | None) -> bool:
    if targets is None:
        return _source(answer) == RUN_TIME
    return any((one["pattern"], one["source"]) == (targets, RUN_TIME) for one in answer["limits"])


def _source(answer: Answer) -> str:
    """An older proxy reports only the limit of the settings."""
    return str(answer.get("max_per_second_source", SETTINGS))


def _rule(text: str) -> Mapping[str, str]:
    older_than, _, action = text.partition(":")
    try:
        rule = OverdueLimit.model_validate({"older_than": older_than, "action": action})
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(
            f"{text!r} is no rule: write age:action, like 1h:drop; actions are drop, dead-letter "
            f"and deliver ({why})"
        ) from None
    return {"older_than": shown_delay(rule.older_than_ms), "action": rule.action}


def _row(limit: Mapping[str, Any]) -> list[str]:
    rule, per_second = limit["overdue"], limit["per_second"]
    return [
        limit["pattern"],
        "" if per_second is None else f"{per_second:,}",
        "" if rule is None else f"{rule['older_than']}:{rule['action']}",
        limit["source"],
    ]


SKIPPED_WITHIN_S: Final = 120.0
"""Finding the end of a large batch takes some dozen connections."""


def skip(
    partition: Annotated[int, typer.Option(min=0, help="The partition of the ingress.")],
    offset: Annotated[
        int, typer.Option(min=0, help="Where it cannot be read on: the log and /readyz name it.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be skipped, and change nothing.")
    ] = False,
    admin: Annotated[
        str | None, typer.Option("--admin", help="host:port of any instance's admin port.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Skip the record batch at which a partition of the ingress cannot be read on.

    Each of its records becomes a dead letter without content, `record-unreadable`. What can be read
    is never skipped. Exit code 1 where the instance asked has not read on yet."""
    body = {"partition": partition, "offset": offset, "dry_run": dry_run}
    done = ask_any(settings_for(config), admin, "POST", "/skips", body, SKIPPED_WITHIN_S)
    if as_json:
        say_json(done)
    else:
        say(f"{_said_of_skip(done)} ({done['why']})")
    raise typer.Exit(0 if done["in_force"] or dry_run else 1)


def _said_of_skip(done: Answer) -> str:
    where = f"offsets {done['offset']} up to, not including, {done['end']} of partition"
    if done["dry_run"]:
        return f"would skip {where} {done['partition']}"
    later = "" if done["in_force"] else "; written, but the proxy has not read on yet"
    return f"skipped {where} {done['partition']}{later}"
