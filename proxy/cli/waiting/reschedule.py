"""`reschedule`: a record that waits is delivered at another time."""

from typing import Annotated, Final
from urllib.parse import quote

import typer

from proxy.cli.admin_port import address_of, ask
from proxy.cli.terminal.options import (
    AsJson,
    Config,
    checked_delay_ms,
    checked_instant_ms,
    checked_origin,
    settings_for,
)
from proxy.cli.terminal.output import say, say_json, shown_time
from proxy.clock import wall_clock_ms
from proxy.records.outcome import MISSED
from proxy.telemetry.intake import LONG_PAST_MS

WAIT: Final = "10s"
ANSWER_WITHIN_S: Final = 90.0
TOO_LATE: Final = "too late: the record had ended before, and nothing was changed"
NOT_YET: Final = "written as {origin}; what becomes of it is not known yet: is the proxy behind?"


def reschedule(
    origin: Annotated[
        str, typer.Argument(help="topic/partition/offset: what `pending list` shows.")
    ],
    at: Annotated[str | None, typer.Option(help="When: RFC 3339 with a zone, or epoch ms.")] = None,
    delay: Annotated[str | None, typer.Option(help="From now on: 30s, 5m, PT1H ...")] = None,
    admin: Annotated[
        str | None, typer.Option("--admin", help="host:port of the admin port that serves it.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Have a record that waits delivered at another time: --at or --delay.

    Exit code 1 where it had ended before, or where that is not known yet."""
    deliver_at_ms, place = _deliver_at_ms(at, delay), checked_origin(origin)
    settings = settings_for(config)
    done = ask(
        admin or address_of(settings.admin),
        f"/records/{quote(str(place))}?wait={WAIT}",
        settings.admin.token,
        method="PATCH",
        body={"deliver_at": deliver_at_ms},
        within_s=ANSWER_WITHIN_S,
    )
    is_moved = done["outcome"] not in (None, MISSED)
    if as_json:
        say_json(done)
    elif is_moved:
        say(f"moved: due {shown_time(deliver_at_ms)}, now {done['origin']}")
    else:
        say(TOO_LATE if done["outcome"] == MISSED else NOT_YET.format(**done))
    raise typer.Exit(0 if is_moved else 1)


def _deliver_at_ms(at: str | None, delay: str | None) -> int:
    if (at is None) is (delay is None):
        raise typer.BadParameter("name either --at or --delay")
    if not at:
        return wall_clock_ms() + checked_delay_ms(delay or "")
    deliver_at_ms = checked_instant_ms(at)
    if deliver_at_ms < wall_clock_ms() - LONG_PAST_MS:
        raise typer.BadParameter(
            f"{at} is {shown_time(deliver_at_ms)}: epoch times are milliseconds. For at once "
            "write --delay 0"
        )
    return deliver_at_ms
