"""`purge`: nothing that waits for some targets is delivered."""

from typing import Annotated, Any, Final

import typer

from proxy.cli.admin_port import address_of, ask
from proxy.cli.terminal.options import (
    AsJson,
    Config,
    checked_instant_ms,
    checked_pattern,
    settings_for,
)
from proxy.cli.terminal.output import say, say_json, shown_time

ANSWER_WITHIN_S: Final = 90.0
NOT_YET: Final = (
    "The purge is written, and counts as soon as each partition has read it; not all have yet: is "
    "the proxy behind (see /readyz), or is taking in paused (see `pauses`)?"
)


def purge(
    targets: Annotated[str, typer.Argument(help="A target, or a pattern like 'orders-*'.")],
    since: Annotated[
        str | None, typer.Option("--from", help="Only what is due then or later: RFC 3339, ms.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="Only what is due by then.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    admin: Annotated[
        str | None, typer.Option("--admin", help="host:port of the proxy's admin server.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Have nothing delivered that waits for these targets now, in all partitions.

    Each record ends with the outcome `cancelled`. Undecided half messages are left alone. Exit code
    1 where it does not count everywhere yet."""
    if as_json and not (dry_run or yes):
        raise typer.BadParameter("with --json nobody is asked: name --yes, or --dry-run")
    settings = settings_for(config)
    asked = {"targets": checked_pattern(targets), "due_from": _ms(since), "due_to": _ms(until)}

    def purge_now(*, is_dry: bool) -> dict[str, Any]:
        return ask(
            admin or address_of(settings.admin),
            "/purges",
            settings.admin.token,
            method="POST",
            body={**asked, "dry_run": is_dry},
            within_s=ANSWER_WITHIN_S,
        )

    counted = purge_now(is_dry=True)
    if yes and not (dry_run or as_json):
        say(f"{_counted(counted)}.")
    if not (dry_run or yes):
        typer.confirm(f"{_counted(counted)}. Purge them?", abort=True)
    done = counted if dry_run else purge_now(is_dry=False)
    if as_json:
        say_json(done)
    elif dry_run:
        say(f"{_counted(done)}; nothing was done.")
    elif done["applied"]:
        say(f"purged: nothing that waits for {targets} is delivered: {', '.join(done['purges'])}")
    else:
        say(NOT_YET)
    raise typer.Exit(0 if dry_run or done["applied"] else 1)


def _counted(counted: dict[str, Any]) -> str:
    more = "" if counted["counted_all"] else "at least "
    since = "" if counted["due_from"] is None else f" from {shown_time(counted['due_from'])}"
    until = "" if counted["due_to"] is None else f" to {shown_time(counted['due_to'])}"
    due = f", due{since}{until}," if since or until else ""
    records = f"{more}{counted['records']:,} records for {counted['targets']}{due} wait"
    return f"{records} in the partitions {counted['partitions']} of this instance"


def _ms(text: str | None) -> int | None:
    return None if text is None else checked_instant_ms(text)
