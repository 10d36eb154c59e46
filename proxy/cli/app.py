"""The list of commands, and the entry point that prints errors."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Final, NoReturn

import typer

from proxy import __version__
from proxy.cli import (
    audit,
    check,
    dead_letters,
    declarations,
    instances,
    moving,
    pending,
    release,
    run,
    send,
    store,
    trace,
    trial,
    watch,
)
from proxy.cli.terminal import with_options
from proxy.config.sources import variable_name
from proxy.errors import ProxyError
from proxy.logs import configure_logs, plain, plain_lines, show_any_text

DEBUG = variable_name(("log", "level"))
PRIVATE: Final = 0o077
"""Files may contain records, so only this user may read the files."""

app = typer.Typer(
    name="kafka-delay-proxy",
    help="Delayed and scheduled delivery for Kafka, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command. The exit code is 0, 1 for an error, or 2 for wrong use."""
    os.umask(PRIVATE)
    show_any_text()
    try:
        app(args=None if arguments is None else list(arguments), prog_name="kafka-delay-proxy")
    except ProxyError as error:
        print(plain_lines(f"Error: {error}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 (the user gets a sentence for any error)
        text = plain(f"{type(error).__name__}: {error}")
        print(
            f"Error: this is a defect of kafka-delay-proxy. Please report it: {text}",
            file=sys.stderr,
        )
        if os.environ.get(DEBUG, "").lower() == "debug":
            print(plain_lines("".join(traceback.format_exception(error))), file=sys.stderr)
        else:
            print(
                f"Set {DEBUG}=debug in the environment to see where it happened.", file=sys.stderr
            )
        sys.exit(1)
    sys.exit(0)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
    configure_logs("warning", "auto")


COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "dev": trial.dev,
    "run": run.run,
    "check": check.check,
    "send": send.send,
    "cancel": send.cancel,
    "recall": send.recall,
    "purge": pending.purge,
    "reschedule": pending.reschedule,
    "move": pending.move,
    "pause": release.pause,
    "resume": release.resume,
    "pauses": release.pauses,
    "changes": release.changes,
    "skip": release.skip,
    "commit": send.commit,
    "rollback": send.rollback,
    "watch": watch.watch,
    "trace": trace.trace,
    "audit": audit.audit,
    "broker": trial.broker,
    "export": moving.export,
    "import": moving.import_records,
    "instances": instances.instances,
    "find": pending.find,
    "pending list": pending.list_pending,
    "limits set": release.set_limit,
    "limits clear": release.clear_limit,
    "rights": declarations.rights,
    "topics create": run.create_topics,
    "store verify": store.verify_store,
    "store dump": store.dump_store,
    "dead-letters list": dead_letters.list_letters,
    "dead-letters show": dead_letters.show_letter,
    "dead-letters replay": dead_letters.replay_letters,
}
GROUPS: Final = {
    "pending": typer.Typer(invoke_without_command=True),
    "limits": typer.Typer(invoke_without_command=True),
    "topics": typer.Typer(help="Manage the proxy's own topics.", no_args_is_help=True),
    "store": typer.Typer(help="Read a proxy's local data on disk.", no_args_is_help=True),
    "dead-letters": typer.Typer(
        help="List, show and replay undeliverable records.", no_args_is_help=True
    ),
}
for words, command in COMMANDS.items():
    group, _, name = words.rpartition(" ")
    GROUPS.get(group, app).command(name)(with_options(command))
GROUPS["pending"].callback()(with_options(pending.pending))
GROUPS["limits"].callback()(with_options(release.limits))
GROUPS["topics"].callback()(lambda: None)  # keeps `create` a subcommand
for group, commands in GROUPS.items():
    app.add_typer(commands, name=group)
