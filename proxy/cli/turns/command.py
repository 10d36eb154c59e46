"""`turns`: which step of the loop takes how long, and which turns were the longest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from proxy.cli.admin_port import addresses_of, ask, ask_each
from proxy.cli.terminal.options import AsJson, Config, EachAdmin, settings_for
from proxy.cli.terminal.output import say, say_json
from proxy.cli.turns.output import say_worker
from proxy.config.settings import Settings
from proxy.errors import ProxyError
from proxy.extras import ExtraMissing, how_to_get, lacking

SAYS_NOTHING: Final = "It says nothing: it starts, hangs, or has just died."
PICTURES: Final = (".svg", ".png", ".pdf")


class PictureUnwritten(ProxyError):
    """The file system does not take the picture."""


def turns(
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the minute, too: a file .svg, .png or .pdf."),
    ] = None,
    admin: EachAdmin = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say what the loop of each worker did within the last minute: how long its steps take, and
    which turns were the longest. A loop that stands still is seen while it does."""
    if plot is not None:
        _refuse_unfit(plot)
    workers, silent = _asked(settings_for(config), admin, with_rows=plot is not None)
    rows = {worker["name"]: worker.pop("rows", {}) for worker in workers}
    if as_json:
        say_json({"workers": workers, "silent": silent})
    else:
        for worker in workers:
            say_worker(worker)
        for name, why in silent.items():
            say(f"{name}: {why}")
    if plot is not None:
        _draw(rows, plot)


def _asked(
    settings: Settings, admin: Sequence[str] | None, *, with_rows: bool
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """All workers that say something, each with its `name`; why others do not, by theirs."""

    def ask_one(address: str) -> tuple[str, dict[str, Any]]:
        path = "/turns?rows=true" if with_rows else "/turns"
        return address, ask(address, path, settings.admin.token)

    replies, silent = ask_each(addresses_of(settings.admin, admin), ask_one)
    workers = [
        {"name": _name(address, worker["worker"]), **worker}
        for address, reply in replies
        for worker in reply["workers"]
    ]
    mute = [_name(address, worker) for address, reply in replies for worker in reply["silent"]]
    return workers, {**silent, **dict.fromkeys(mute, SAYS_NOTHING)}


def _name(address: str, worker: str) -> str:
    return f"{address} worker {worker}"


def _refuse_unfit(plot: Path) -> None:
    if plot.suffix not in PICTURES:
        raise typer.BadParameter(f"--plot {plot}: a picture ends in {', '.join(PICTURES)}")
    if "matplotlib" in lacking("spark"):
        raise ExtraMissing(
            "`turns --plot` needs matplotlib, which is not installed.", how_to_get("spark")
        )


def _draw(rows: dict[str, dict[str, list[int]]], plot: Path) -> None:
    from proxy.cli.turns.picture import draw

    try:
        draw(rows, plot)
    except OSError as error:
        raise PictureUnwritten(
            f"The picture cannot be written: {plot}: {error.strerror}.",
            "Name a file in a folder that is there.",
        ) from None
