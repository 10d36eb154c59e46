"""`commit` and `rollback`: decide a half message, by its id."""

import typer

from proxy.cli.kafka.control import DEFAULT_WAIT, Ident, Partition, Wait, carry_out
from proxy.cli.kafka.ingress_record import decision_on
from proxy.cli.terminal.options import AsJson, Bootstrap, Config, settings_for
from proxy.config.settings import Settings

SENTENCES = {
    "commit": "is delivered at its due, or now if that has passed",
    "rollback": "will not be delivered",
}


def commit(
    ident: Ident,
    partition: Partition = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let a half message be delivered. Exit code 1 where none was undecided, or no answer came."""
    settings = settings_for(config, bootstrap)
    raise typer.Exit(_decide("commit", ident, partition, wait, settings, as_json=as_json))


def rollback(
    ident: Ident,
    partition: Partition = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Drop a half message. Exit code 1 where none was undecided, or no answer came."""
    settings = settings_for(config, bootstrap)
    raise typer.Exit(_decide("rollback", ident, partition, wait, settings, as_json=as_json))


def _decide(
    what: str, ident: str, partition: int | None, wait: str, settings: Settings, *, as_json: bool
) -> int:
    sentence = f"applied: the half message {ident} {SENTENCES[what]}"
    record = decision_on(ident, what, partition)
    return carry_out(settings, record, ident, wait, lambda _result: sentence, as_json=as_json)
