"""`skip`: a batch of the ingress that cannot be read becomes dead letters."""

from typing import Annotated, Final

import typer

from proxy.cli.admin_port import address_of, ask
from proxy.cli.terminal.options import AsJson, Config, settings_for
from proxy.cli.terminal.output import say, say_json

ANSWER_WITHIN_S: Final = 120.0
"""The end of a batch of many records is found in some dozen steps, each with a connection."""


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
    settings = settings_for(config)
    done = ask(
        admin or address_of(settings.admin),
        "/skips",
        settings.admin.token,
        method="POST",
        body={"partition": partition, "offset": offset, "dry_run": dry_run},
        within_s=ANSWER_WITHIN_S,
    )
    if as_json:
        say_json(done)
    else:
        say(f"{_shown(done)} ({done['why']})")
    raise typer.Exit(0 if done["in_force"] or dry_run else 1)


def _shown(done: dict[str, object]) -> str:
    where = f"offsets {done['offset']} up to, not including, {done['end']} of partition"
    if done["dry_run"]:
        return f"would skip {where} {done['partition']}"
    later = "" if done["in_force"] else "; written, but the proxy has not read on yet"
    return f"skipped {where} {done['partition']}{later}"
