"""`limits`: caps and rules for the overdue, those of the settings and those set at run time."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from proxy.cli.release.run_time_change import (
    Admin,
    ask_instances,
    path_of,
    say_silent,
    tell_done,
)
from proxy.cli.terminal.options import AsJson, Config, settings_for
from proxy.cli.terminal.output import say, say_json, say_table
from proxy.config.settings import MOST_PER_SECOND
from proxy.config.target_limit import OverdueLimit
from proxy.errors import ProxyError
from proxy.requests.times import shown_delay

COLUMNS = ("targets", "per second", "overdue", "from")
WORKERS_PATH = "/limits"
EACH_WORKER = "(each worker)"
Pattern = Annotated[
    str | None, typer.Argument(help="A target, or a pattern like 'orders-*'.", show_default=False)
]
Worker = Annotated[
    bool, typer.Option("--worker", help="Not a target: all that each worker delivers or ends.")
]

RUN_TIME = "run-time"
SETTINGS = "settings"


class NotLimited(ProxyError):
    """No limit was set at run time where one is to be cleared."""


app = typer.Typer(invoke_without_command=True)


@app.callback()
def limits(
    context: typer.Context, admin: Admin = None, config: Config = None, as_json: AsJson = False
) -> None:
    """List the caps and rules for the overdue that count; the first that fits a target does.

    `limits set` and `limits clear` change them at run time, for all instances."""
    if context.invoked_subcommand is not None:
        return
    answers = ask_instances(settings_for(config), admin, "GET", "/limits")
    found: list[dict[str, Any]] = []
    for reply in answers.replies:
        found += [one for one in reply["limits"] if one not in found]
    found.sort(key=lambda one: one["source"] == SETTINGS)
    if as_json:
        first = answers.replies[0]
        bounds = [{"max_per_second": n, "source": source} for n, source in _bounds(answers.replies)]
        say_json({**first, "limits": found, "each_worker": bounds, "silent": answers.silent})
        return
    rows = [*_row_of_workers(answers.replies), *map(_row, found)]
    if rows:
        say_table(COLUMNS, rows)
    else:
        say("No target has a limit.")
    say_silent(answers)


@app.command("set")
def set_limit(
    targets: Pattern = None,
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
    path = _path(targets, is_worker=worker)
    if worker and (per_second is None or overdue is not None):
        raise typer.BadParameter("with --worker name --per-second; --overdue is for targets")
    if per_second is None and overdue is None:
        raise typer.BadParameter("name --per-second, --overdue, or both")
    body: dict[str, Any] = {} if per_second is None else {"per_second": per_second}
    if overdue is not None:
        body["overdue"] = _rule(overdue)
    answers = ask_instances(settings_for(config), admin, "PUT", path, body)
    tell_done(answers, f"{targets or 'Each worker'} is limited.", as_json=as_json)


@app.command("clear")
def clear_limit(
    targets: Pattern = None,
    worker: Worker = False,
    admin: Admin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take back what was set at run time: what the settings say counts again.

    Exit code 1 where nothing was set, or an instance has not noticed yet."""
    path, settings = _path(targets, is_worker=worker), settings_for(config)
    known = ask_instances(settings, admin, "GET", WORKERS_PATH).replies
    if not any(_is_set(reply, targets) for reply in known):
        raise NotLimited(
            f"Nothing was set at run time for {targets or 'each worker'}.",
            "`limits` lists what is set: name the pattern as it stands there." if targets else "",
        )
    answers = ask_instances(settings, admin, "DELETE", path)
    whose = targets or "A worker as a whole"
    tell_done(answers, f"{whose} has no limit set at run time.", as_json=as_json)


def _path(targets: str | None, *, is_worker: bool) -> str:
    if is_worker == (targets is not None):
        raise typer.BadParameter("name a target or pattern, or --worker: one of the two")
    return WORKERS_PATH if targets is None else path_of(WORKERS_PATH, targets)


def _is_set(reply: Mapping[str, Any], targets: str | None) -> bool:
    """Whether something was set at run time for this pattern; None: for each worker."""
    if targets is None:
        return _source(reply) == RUN_TIME
    return any((one["pattern"], one["source"]) == (targets, RUN_TIME) for one in reply["limits"])


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


def _row_of_workers(replies: Iterable[Mapping[str, Any]]) -> Iterable[list[str]]:
    """None where nothing bounds them."""
    for per_second, source in _bounds(replies):
        if per_second is not None:
            yield [EACH_WORKER, f"{per_second:,}", "", source]


def _bounds(replies: Iterable[Mapping[str, Any]]) -> list[tuple[int | None, str]]:
    """On each worker as a whole; of instances that do not say the same each."""
    found = ((reply["max_per_second"], _source(reply)) for reply in replies)
    return list(dict.fromkeys(found))


def _source(reply: Mapping[str, Any]) -> str:
    """An older proxy knows the settings' bound alone."""
    return str(reply.get("max_per_second_source", SETTINGS))


def _row(limit: Mapping[str, Any]) -> list[str]:
    rule, per_second = limit["overdue"], limit["per_second"]
    return [
        limit["pattern"],
        "" if per_second is None else f"{per_second:,}",
        "" if rule is None else f"{rule['older_than']}:{rule['action']}",
        limit["source"],
    ]
