"""The list of commands, and the conversion of errors to sentences."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Final, NoReturn

import typer

from proxy import __version__
from proxy.cli import (
    audit,
    check,
    dead_letters,
    pending,
    release,
    run,
    send,
    store,
    trace,
    trial,
    watch,
)
from proxy.config.sources import variable_name
from proxy.errors import ProxyError
from proxy.logs import configure_logs, plain, plain_lines, show_any_text

DEBUG = variable_name(("log", "level"))
PRIVATE: Final = 0o077
"""Files may hold record bytes, so only this user may read them."""

app = typer.Typer(
    name="kafka-delay-proxy",
    help="Delayed and scheduled delivery for Kafka, exactly once, beside the broker.",
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
    except Exception as error:  # noqa: BLE001 (a person gets a sentence for any error)
        _tell_defect(error)
        sys.exit(1)
    sys.exit(0)


def _tell_defect(error: Exception) -> None:
    text = plain(f"{type(error).__name__}: {error}")
    print(f"Error: a defect of kafka-delay-proxy, please report it: {text}", file=sys.stderr)
    if os.environ.get(DEBUG, "").lower() == "debug":
        print(plain_lines("".join(traceback.format_exception(error))), file=sys.stderr)
    else:
        print(f"With {DEBUG}=debug in the environment it shows where.", file=sys.stderr)


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


COMMANDS: Final = (
    trial.dev,
    run.run,
    check.check,
    send.send,
    send.cancel,
    send.recall,
    pending.purge,
    pending.reschedule,
    release.pause,
    release.resume,
    release.pauses,
    release.skip,
    send.commit,
    send.rollback,
    watch.watch,
    trace.trace,
    audit.audit,
    trial.broker,
    pending.find,
)
for command in COMMANDS:
    app.command(command.__name__)(command)
_pending = typer.Typer(invoke_without_command=True)
_pending.callback()(pending.pending)
_pending.command("list")(pending.list_pending)
app.add_typer(_pending, name="pending")
app.add_typer(release.limits_app, name="limits")
app.add_typer(run.topics_app, name="topics")
app.add_typer(store.app, name="store")
app.add_typer(dead_letters.app, name="dead-letters")
