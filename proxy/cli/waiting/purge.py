"""`purge`: nothing that waits for some targets is delivered."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from proxy.cli.admin_port import addresses_of, ask, ask_each
from proxy.cli.terminal.options import (
    AsJson,
    Config,
    EachAdmin,
    checked_instant_ms,
    checked_pattern,
    settings_for,
)
from proxy.cli.terminal.output import counted, say, say_json, shown_time
from proxy.cli.waiting.coverage import (
    missing_partitions,
    refuse_silent,
    repeated,
    say_missing,
    say_repeated,
    say_silent,
    shown_partitions,
)

ANSWER_WITHIN_S: Final = 90.0
NOT_YET: Final = (
    "The purge is written, and counts as soon as each partition has read it; not all have yet: is "
    "the proxy behind (see /readyz), or is taking in paused (see `pauses`)?"
)

Said = dict[str, Any]
"""What the API answers to a purge, or to its count."""


def purge(
    targets: Annotated[str, typer.Argument(help="A target, or a pattern like 'orders-*'.")],
    since: Annotated[
        str | None, typer.Option("--from", help="Only what is due then or later: RFC 3339, ms.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="Only what is due by then.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    admin: EachAdmin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Have nothing delivered that waits for these targets now, in all partitions.

    Each record ends with the outcome `cancelled`. Undecided half messages are left alone. Each
    instance named counts its own; the purge counts for all. Exit code 1 where it does not count
    everywhere yet, with --dry-run where an instance that was to count is silent."""
    if as_json and not (dry_run or yes):
        raise typer.BadParameter("with --json nobody is asked: name --yes, or --dry-run")
    settings = settings_for(config)
    addresses, token = addresses_of(settings.admin, admin), settings.admin.token
    asked = {"targets": checked_pattern(targets), "due_from": _ms(since), "due_to": _ms(until)}

    def ask_to_purge(address: str, *, is_dry: bool) -> Said:
        how = {"method": "POST", "body": {**asked, "dry_run": is_dry}, "within_s": ANSWER_WITHIN_S}
        return ask(address, "/purges", token, **how)

    replies, silent = ask_each(addresses, lambda address: ask_to_purge(address, is_dry=True))
    counted = _together(replies)
    missing = missing_partitions(settings, counted["partitions"])
    if not as_json:
        say(f"{_shown(counted)}.")
        say_repeated(counted["partitions_twice"])
        say_silent(silent)
        say_missing(missing)
    if not (dry_run or yes):
        typer.confirm("Purge it, in all partitions?", abort=True)
    done = counted | {"partitions_missing": missing, "silent": silent}
    if not dry_run:
        answering = next(address for address in addresses if address not in silent)
        said = ask_to_purge(answering, is_dry=False)
        done |= {name: said[name] for name in ("dry_run", "purges", "applied")}
    _tell(done, as_json=as_json)


def _tell(done: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        say_json(done)
    if done["dry_run"]:
        if not as_json:
            say("Nothing was done.")
        refuse_silent(done["silent"])
        return
    if not as_json:
        origins = ", ".join(done["purges"])
        purged = f"purged: nothing that waits for {done['targets']} is delivered: {origins}"
        say(purged if done["applied"] else NOT_YET)
    raise typer.Exit(0 if done["applied"] else 1)


def _together(replies: Sequence[Said]) -> Said:
    covered = [said["partitions"] for said in replies]
    partitions = {number for numbers in covered for number in numbers}
    return replies[0] | {
        "partitions_twice": repeated(covered),
        "records": sum(said["records"] for said in replies),
        "counted_all": all(said["counted_all"] for said in replies),
        "partitions": sorted(partitions),
    }


def _shown(waiting: Said) -> str:
    more = "" if waiting["counted_all"] else "at least "
    since = "" if waiting["due_from"] is None else f" from {shown_time(waiting['due_from'])}"
    until = "" if waiting["due_to"] is None else f" to {shown_time(waiting['due_to'])}"
    due = f", due{since}{until}," if since or until else ""
    records = waiting["records"]
    wait = "waits" if records == 1 else "wait"
    shown = f"{more}{counted(records, 'record')} for {waiting['targets']}{due} {wait}"
    return f"{shown}. Partitions covered: {shown_partitions(waiting['partitions'])}"


def _ms(text: str | None) -> int | None:
    return None if text is None else checked_instant_ms(text)
