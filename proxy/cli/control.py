"""`cancel`, `recall`, `commit` and `rollback`: a control record, and what comes of it."""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from proxy.cli.kafka import (
    ControlResult,
    IngressRecord,
    cancel_of,
    decision_on,
    origin_of,
    proven_recall,
    recall_of,
    write_and_wait,
    write_to_ingress,
)
from proxy.cli.terminal import (
    AsJson,
    Bootstrap,
    Config,
    checked_delay_ms,
    checked_ident,
    say,
    say_json,
    settings_for,
    shown_duration,
    shown_time,
)
from proxy.config.settings import Settings
from proxy.dead_letters.letter import read_origin
from proxy.protocol.headers import RECALL
from proxy.protocol.outcomes import MISSED

Ident = Annotated[str, typer.Argument(metavar="ID", help="The record's timer-id.")]
Origin = Annotated[
    str, typer.Argument(metavar="ORIGIN", help="Where it was written: topic/partition/offset.")
]
Partition = Annotated[
    int | None,
    typer.Option(min=0, help="Its ingress partition, where it was not keyed by its id."),
]
Key = Annotated[
    str | None, typer.Option(help="The key that it has in the ingress; without: it is read there.")
]
Id = Annotated[str | None, typer.Option("--id", help="Its timer-id, in place of the key.")]
Wait = Annotated[str, typer.Option(help="How long to wait for the answer; 0: not at all.")]
DEFAULT_WAIT: Final = "5s"
SILENCE: Final = (
    "The proxy may not be running, or be behind: see `pending` and its /readyz. The request stands "
    "in the ingress and counts as soon as it is read."
)


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

    settings, record = settings_for(config, bootstrap), cancel_of(checked_ident(ident), partition)
    raise typer.Exit(_carry_out(settings, record, ident, wait, applied, as_json=as_json))


def recall(
    origin: Origin,
    key: Key = None,
    ident: Id = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take back the record that was written there, with or without an id. The proxy asks for its
    key or id, which are read there. Exit code 1 where it had ended, or no answer came."""
    settings, place = settings_for(config, bootstrap), read_origin(origin)
    ingress = settings.topics.ingress
    if place is None or place.topic != ingress or str(place) != origin:
        raise typer.BadParameter(
            f"name where `send` wrote it: {ingress}/partition/offset, as the receipt says"
        )
    checked_delay_ms(wait)  # before the broker is asked for the record
    if key is None and ident is None:
        record = proven_recall(settings, place)
    else:
        named = None if ident is None else checked_ident(ident).encode()
        record = recall_of(place, None if key is None else key.encode(), named)
    applied = f"applied: {origin} will not be delivered"
    raise typer.Exit(_carry_out(settings, record, origin, wait, lambda _: applied, as_json=as_json))


def commit(
    ident: Ident,
    partition: Partition = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Let a half message be delivered. Exit code 1 where none was undecided, or no answer came."""
    settings, record = settings_for(config, bootstrap), _decision(ident, "commit", partition)
    applied = (
        f"applied: the half message {ident} is delivered at its due, or now if that has passed"
    )
    raise typer.Exit(_carry_out(settings, record, ident, wait, lambda _: applied, as_json=as_json))


def rollback(
    ident: Ident,
    partition: Partition = None,
    wait: Wait = DEFAULT_WAIT,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Drop a half message. Exit code 1 where none was undecided, or no answer came."""
    settings, record = settings_for(config, bootstrap), _decision(ident, "rollback", partition)
    applied = f"applied: the half message {ident} will not be delivered"
    raise typer.Exit(_carry_out(settings, record, ident, wait, lambda _: applied, as_json=as_json))


def _decision(ident: str, what: str, partition: int | None) -> IngressRecord:
    return decision_on(checked_ident(ident), what, partition)


def _carry_out(
    settings: Settings,
    record: IngressRecord,
    named: str,
    wait: str,
    applied: Callable[[ControlResult], str],
    *,
    as_json: bool,
) -> int:
    """Write the record, wait for the answer, print it (by `applied` if all is done); exit code."""
    limit_s = checked_delay_ms(wait) / 1000
    if not limit_s:
        result = ControlResult(origin_of(write_to_ingress(settings, record)))
    else:
        result = write_and_wait(settings, record, named, limit_s)
    if as_json:
        say_json({"recalls" if RECALL in dict(record.headers) else "id": named, **result._asdict()})
    elif result.exit_code == 0:
        say(applied(result))
    else:
        say(_not_applied(result, named, record, limit_s))
    return result.exit_code if limit_s else 0


def _not_applied(result: ControlResult, named: str, record: IngressRecord, limit_s: float) -> str:
    if result.outcome == MISSED:
        why = result.detail or "nothing pends with this id"
        return f"missed: {why}: {named} (asked as {result.origin}).{_where_else(record)}"
    if result.outcome is not None:
        return f"{result.outcome}: {result.detail} (asked as {result.origin})"
    if not limit_s:
        return f"written as {result.origin}; not waited for"
    waited = shown_duration(round(limit_s * 1000))
    return f"no answer to {result.origin} within {waited}. {SILENCE}"


def _where_else(record: IngressRecord) -> str:
    """An id counts within its ingress partition: the record may lie in another one."""
    if record.partition >= 0:
        return ""
    return " If the record was not keyed by its id, name its ingress partition: --partition."
