"""`instances`: all instances of the group, their totals, and who did not answer."""

from collections.abc import Iterable, Mapping
from typing import Any

import typer

from proxy.cli.admin_port import NONE_COVERED, Instance
from proxy.cli.terminal import counted, say, say_json, say_table
from proxy.logs import plain

COLUMNS = ("instance", "version", "state", "partitions", "pending", "overdue", "oldest overdue by")


def instances(asked: Instance) -> None:
    """Show all instances of the group, their totals, and which instances did not answer.

    One instance asks the others (setting `admin.peers`). Exit code 1: the totals are incomplete."""
    said = asked.ask("/instances")
    if asked.as_json:
        say_json(said)
        raise typer.Exit(0 if said["complete"] else 1)
    say_table(COLUMNS, map(_row, said["instances"]))
    for one in said["unanswered"]:
        say(f"{plain(one['instance'])} did not answer. {plain(one['reason'])}")
    missing, answered = said["partitions_missing"], len(said["instances"])
    whole = answered + len(said["unanswered"])
    known = f"{counted(said['pending'], 'record')} pending, {_number(said['overdue'])} overdue."
    say(
        f"{answered} of {counted(whole, 'instance')} answered: "
        f"{known if said['partitions'] else NONE_COVERED}"
    )
    if missing is None:
        say("The broker is silent, so it is not known whether these are all partitions.")
    elif missing:
        say(f"These totals lack the partitions {_numbers(missing)}.")
    elif not said["complete"]:
        say("A partition changes from one instance to another, and is counted twice.")
    raise typer.Exit(0 if said["complete"] else 1)


def _row(one: Mapping[str, Any]) -> list[str]:
    return [
        plain(one["name"]),
        plain(one["version"]),
        _state(one),
        _numbers(shard["partition"] for shard in one["shards"]),
        f"{one['pending']:,}",
        _number(one["overdue"]),
        f"{one['oldest_overdue_s']:.1f} s",
    ]


def _state(one: Mapping[str, Any]) -> str:
    if not one["ready"]:
        return plain(one["reason"])
    return "disk full: reads no new records" if one["disk_full"] else "ready"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _numbers(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, partitions)) or "none"
