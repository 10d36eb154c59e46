"""What `cancel`, `commit` and `rollback` have in common: a control record, and what comes of it."""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from proxy.cli.kafka.control_result import ControlResult, write_and_wait
from proxy.cli.kafka.ingress_record import IngressRecord
from proxy.cli.kafka.ingress_writer import origin_of, write_to_ingress
from proxy.cli.terminal.options import checked_ident
from proxy.cli.terminal.output import say, say_json, shown_duration
from proxy.config.settings import Settings
from proxy.requests.times import parse_delay_ms

Ident = Annotated[str, typer.Argument(metavar="ID", help="The record's timer-id.")]
Partition = Annotated[
    int | None,
    typer.Option(min=0, help="Its ingress partition, where it was not keyed by its id."),
]
Wait = Annotated[str, typer.Option(help="How long to wait for the answer; 0: not at all.")]
DEFAULT_WAIT: Final = "5s"
SILENCE: Final = (
    "The proxy may not be running, or be behind: see `pending` and its /readyz. The request stands "
    "in the ingress and counts as soon as it is read."
)


def carry_out(
    settings: Settings,
    record: IngressRecord,
    ident: str,
    wait: str,
    applied: Callable[[ControlResult], str],
    *,
    as_json: bool,
) -> int:
    """Write the record, wait for the answer, print it; the exit code.

    `applied` makes the sentence where all is done.
    """
    checked_ident(ident)
    limit_s = _wait_s(wait)
    if not limit_s:
        result = ControlResult(origin_of(write_to_ingress(settings, record)))
    else:
        result = write_and_wait(settings, record, ident, limit_s)
    if as_json:
        say_json({"id": ident, **result._asdict()})
    elif result.exit_code == 0:
        say(applied(result))
    else:
        say(_not_applied(result, ident, record, limit_s))
    return result.exit_code if limit_s else 0


def _not_applied(result: ControlResult, ident: str, record: IngressRecord, limit_s: float) -> str:
    if result.outcome == "missed":
        why = result.detail or "nothing pends with this id"
        return f"missed: {why}: {ident} (asked as {result.origin}).{_where_else(record)}"
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


def _wait_s(text: str) -> float:
    try:
        return parse_delay_ms(text) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
