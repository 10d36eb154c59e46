"""`limits`: caps and rules for the overdue, those of the settings and those set at run time."""

from collections.abc import Mapping
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
Pattern = Annotated[str, typer.Argument(help="A target, or a pattern like 'orders-*'.")]

RUN_TIME = "run-time"


class NotLimited(ProxyError):
    """No limit was set at run time for the pattern that is to be cleared."""


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
    found.sort(key=lambda one: one["source"] == "settings")
    if as_json:
        say_json({**answers.replies[0], "limits": found, "silent": answers.silent})
        return
    if found:
        say_table(COLUMNS, map(_row, found))
    else:
        say("No target has a limit.")
    say_silent(answers)


@app.command("set")
def set_limit(
    targets: Pattern,
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
    if per_second is None and overdue is None:
        raise typer.BadParameter("name --per-second, --overdue, or both")
    body: dict[str, Any] = {} if per_second is None else {"per_second": per_second}
    if overdue is not None:
        body["overdue"] = _rule(overdue)
    path = path_of("/limits", targets)
    answers = ask_instances(settings_for(config), admin, "PUT", path, body)
    tell_done(answers, f"{targets} is limited.", as_json=as_json)


@app.command("clear")
def clear_limit(
    targets: Pattern, admin: Admin = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Take back what was set at run time for this pattern: what the settings say counts again.

    Exit code 1 where nothing was set, or an instance has not noticed yet."""
    path, settings = path_of("/limits", targets), settings_for(config)
    known = ask_instances(settings, admin, "GET", "/limits").replies
    limits = [limit for reply in known for limit in reply["limits"]]
    if not any((one["pattern"], one["source"]) == (targets, RUN_TIME) for one in limits):
        raise NotLimited(
            f"Nothing was set at run time for {targets}.",
            "Name the pattern as it was set: `limits` lists them.",
        )
    answers = ask_instances(settings, admin, "DELETE", path)
    tell_done(answers, f"{targets} has no limit set at run time.", as_json=as_json)


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
