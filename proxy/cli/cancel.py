"""`cancel`: takes back a record that waits, by its id."""

import typer

from proxy.cli.kafka.control import DEFAULT_WAIT, Ident, Partition, Wait, carry_out
from proxy.cli.kafka.control_result import ControlResult
from proxy.cli.kafka.ingress_record import cancel_of
from proxy.cli.terminal.options import AsJson, Bootstrap, Config, settings_for
from proxy.cli.terminal.output import shown_time


def cancel(
    ident: Ident,
    partition: Partition = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take back what waits with this id. Exit code 1 where nothing did, or no answer came."""

    def applied(result: ControlResult) -> str:
        if result.ended is None:
            return f"applied: what waited with the id {ident} will not be delivered"
        due_ms = result.ended.get("due")
        due = "" if due_ms is None else f", due {shown_time(due_ms)},"
        return f"applied: {result.ended['origin']}{due} will not be delivered"

    settings, record = settings_for(config, bootstrap), cancel_of(ident, partition)
    raise typer.Exit(carry_out(settings, record, ident, wait, applied, as_json=as_json))
